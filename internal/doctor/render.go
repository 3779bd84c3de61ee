// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/compute-agent/compute-agent/internal/textutil"
)

// width is the column where the text of a result begins.
const width = 28

// marks are the labels of results and their colours on a terminal.
var marks = map[Severity]struct{ word, colour string }{
	OK:      {"ok", "\x1b[32m"},
	Skipped: {"skipped", "\x1b[2m"},
	Warning: {"warning", "\x1b[33m"},
	Error:   {"error", "\x1b[31m"},
}

const plain = "\x1b[0m"

// WriteText writes the results as text: a line each, and for a warning or an error why it matters
// and the command that fixes it. Without colour the output has no escape sequences.
func WriteText(w io.Writer, results []Result, colour bool) error {
	b := bufio.NewWriter(w)
	counts := map[Severity]int{}
	for _, r := range results {
		counts[r.Severity]++
		mark := fmt.Sprintf("%-8s", marks[r.Severity].word)
		if colour {
			mark = marks[r.Severity].colour + mark + plain
		}
		_, _ = fmt.Fprintf(b, "%s %-*s %s\n", mark, width-9, sanitize(r.Title), sanitize(r.Found))
		if r.Why != "" {
			_, _ = fmt.Fprintf(b, "%*s%s\n", width+1, "", sanitize(r.Why))
		}
		if r.Fix != "" {
			_, _ = fmt.Fprintf(b, "%*s$ %s\n", width+1, "", sanitize(r.Fix))
		}
	}
	_, _ = fmt.Fprintf(b, "\n%s\n", summary(counts))
	return b.Flush()
}

func summary(counts map[Severity]int) string {
	switch e, w := counts[Error], counts[Warning]; {
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

// sanitize makes text from files and servers one printable line.
func sanitize(s string) string {
	return textutil.Printable(strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return ' '
		}
		return r
	}, s))
}

// WriteJSON writes the results as JSON: {"worst": …, "results": […]}.
func WriteJSON(w io.Writer, results []Result) error {
	if results == nil {
		results = []Result{}
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(struct {
		Worst   Severity `json:"worst"`
		Results []Result `json:"results"`
	}{Worst(results), results})
}
