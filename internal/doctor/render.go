// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// width is the column at which the text of a result begins.
const width = 28

// marks are the words in front of a result and their colours on a terminal.
var marks = map[Severity]struct{ word, colour string }{
	OK:      {"ok", "\x1b[32m"},
	Skipped: {"skipped", "\x1b[2m"},
	Warning: {"warning", "\x1b[33m"},
	Error:   {"error", "\x1b[31m"},
}

const plain = "\x1b[0m"

// WriteText writes the results for people: a line each, and below a warning or
// an error why it matters and the command that mends it. colour is for
// terminals only; without it the output has no escape sequences.
func WriteText(w io.Writer, results []Result, colour bool) error {
	b := bufio.NewWriter(w)
	counts := map[Severity]int{}
	for _, r := range results {
		counts[r.Severity]++
		mark := fmt.Sprintf("%-8s", marks[r.Severity].word)
		if colour {
			mark = marks[r.Severity].colour + mark + plain
		}
		_, _ = fmt.Fprintf(b, "%s %-*s %s\n", mark, width-9, r.Title, harmless(r.Found))
		if r.Why != "" {
			_, _ = fmt.Fprintf(b, "%*s%s\n", width+1, "", harmless(r.Why))
		}
		if r.Mend != "" {
			_, _ = fmt.Fprintf(b, "%*s$ %s\n", width+1, "", harmless(r.Mend))
		}
	}
	_, _ = fmt.Fprintf(b, "\n%s\n", summary(counts))
	return b.Flush()
}

func summary(counts map[Severity]int) string {
	switch e, w := counts[Error], counts[Warning]; {
	case e == 0 && w == 0:
		return "Nothing is wrong."
	case e == 0:
		return plural(w, "warning") + "; the agent runs in spite of it."
	case w == 0:
		return plural(e, "error") + "."
	default:
		return plural(e, "error") + ", " + plural(w, "warning") + "."
	}
}

// harmless keeps what files and servers say from steering the terminal.
func harmless(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return ' '
		}
		return r
	}, s)
}

// WriteJSON writes the results for programs: {"worst": …, "results": […]}.
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
