// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"io"
	"strings"

	"github.com/compute-agent/compute-agent/internal/doctor"
	"github.com/compute-agent/compute-agent/internal/lib/textutil"
)

const (
	// resultColumn is where the text of a result begins, and narrowResults below which width of the
	// terminal it begins on a line of its own.
	resultColumn  = 29
	narrowResults = 80
)

// severities are the styles of results.
var severities = map[doctor.Severity]style{doctor.OK: good, doctor.Skipped: dim, doctor.Warning: notice, doctor.Error: bad}

// Doctor prints results: a line each, and for a warning or an error why it matters and the command
// that fixes it, which is not folded.
func Doctor(w io.Writer, results []doctor.Result) error {
	p := newPrinter(w)
	counts := map[doctor.Severity]int{}
	column := resultColumn
	if p.width > 0 && p.width < narrowResults {
		column = 4
	}
	indent := strings.Repeat(" ", column)
	for _, r := range results {
		counts[r.Severity]++
		mark := p.paint(severities[r.Severity], string(r.Severity)) + painted(strings.Repeat(" ", max(0, 8-len(r.Severity))))
		title := fmt.Sprintf("%-*s", resultColumn-10, r.Title)
		text := p.folded(r.Found, column)
		if column == resultColumn {
			p.row("%s %s %s", mark, title, text[0])
			text = text[1:]
		} else {
			p.row("%s %s", mark, title)
		}
		for _, line := range append(text, p.folded(r.Why, column)...) {
			if line != "" {
				p.row("%s%s", indent, line)
			}
		}
		if r.Fix != "" {
			p.row("%s$ %s", indent, withoutControls(r.Fix))
		}
	}
	p.row("")
	p.row("%s", doctorSummary(counts))
	return p.err
}

// folded is a text as lines that fit behind a column; one without a terminal.
func (p *printer) folded(text string, column int) []string {
	text = textutil.Printable(withoutControls(text))
	if p.width == 0 {
		return []string{text}
	}
	return fold(text, max(p.width-column, narrowest))
}

// withoutControls is text from files and servers without its line ends and other controls.
func withoutControls(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return ' '
		}
		return r
	}, text)
}

func doctorSummary(counts map[doctor.Severity]int) string {
	switch e, w := counts[doctor.Error], counts[doctor.Warning]; {
	case e == 0 && w == 0:
		return "No problems found."
	case e == 0:
		return textutil.Count(w, "warning") + "; the agent works despite this."
	case w == 0:
		return textutil.Count(e, "error") + "."
	default:
		return textutil.Count(e, "error") + ", " + textutil.Count(w, "warning") + "."
	}
}
