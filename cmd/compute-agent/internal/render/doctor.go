// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"io"
	"slices"
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
var severities = map[doctor.Severity]style{doctor.OK: good,
	doctor.Skipped: dim, doctor.Warning: notice, doctor.Error: bad}

// Doctor prints results: a line each, and for a warning or an error why it matters and the command
// that fixes it, which is not folded.
func Doctor(w io.Writer, results []doctor.Result) error {
	p := newPrinter(w)
	counts := p.results(results)
	p.row("")
	p.row("%s", doctorSummary(counts))
	return p.err
}

// ControlPlane prints the results for the services that run beside an agent, below its status: one
// line for all that are well, and the others as [Doctor] does. It prints nothing without any.
func ControlPlane(w io.Writer, results []doctor.Result) error {
	if len(results) == 0 {
		return nil
	}
	var well []string
	rest := slices.DeleteFunc(slices.Clone(results), func(r doctor.Result) bool {
		if r.Severity == doctor.OK {
			well = append(well, r.Title+": "+r.Found)
		}
		return r.Severity == doctor.OK
	})
	p := newPrinter(w)
	p.line("")
	p.line("control plane on this machine")
	p.results(rest)
	if len(well) > 0 {
		p.line("  well        %s", strings.Join(well, "; "))
	}
	return p.err
}

// results prints results, and counts them by severity.
func (p *printer) results(results []doctor.Result) map[doctor.Severity]int {
	counts := map[doctor.Severity]int{}
	column := resultColumn
	if p.width > 0 && p.width < narrowResults {
		column = 4
	}
	indent := strings.Repeat(" ", column)
	for _, r := range results {
		counts[r.Severity]++
		mark := p.styled(severities[r.Severity], string(r.Severity)) +
			painted(strings.Repeat(" ", max(0, 8-len(r.Severity))))
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
	return counts
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
