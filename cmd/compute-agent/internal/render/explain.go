// SPDX-License-Identifier: Apache-2.0

package render

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/placement/candidates"
)

// Explanation prints the verdict on a request for allocation candidates, what the NUMA cells of the
// nearest hosts lack, and how many providers and
// trees satisfy each condition. Conditions that remove nothing are folded.
func Explanation(w io.Writer, e *candidates.Explanation) error {
	p := newPrinter(w)
	p.line("%s", p.styled(bold, e.Verdict))
	for _, h := range e.Hosts {
		p.host(h)
	}
	var rows []explainRow
	for _, g := range e.Groups {
		rows = append(rows, explainRow{text: groupTitle(g), head: true})
		rows = append(rows, folded(len(g.Steps), func(i int) explainRow {
			s := g.Steps[i]
			return explainRow{text: s.Condition, note: s.Note, removed: s.Removed,
				left: []string{strconv.Itoa(s.Providers), strconv.Itoa(s.Trees)}}
		})...)
	}
	rows = append(rows, explainRow{text: "trees", head: true})
	rows = append(rows, folded(len(e.Trees), func(i int) explainRow {
		s := e.Trees[i]
		return explainRow{text: s.Condition, removed: s.Removed, left: []string{"", strconv.Itoa(s.Trees)}}
	})...)
	width, widest := 0, widestCondition
	if p.width > 0 {
		widest = min(widest, p.innerWidth(len("    removed  providers    trees")+len("    ")))
	}
	for i := range rows {
		rows[i].text = textutil.Printable(rows[i].text) // before measuring
		width = max(width, min(utf8.RuneCountInString(rows[i].text), widest))
	}
	p.line("")
	p.row("%s", p.styled(dim, fmt.Sprintf("%-*s  %9s  %9s  %7s", width+2, "", "removed", "providers", "trees")))
	for _, r := range rows {
		switch {
		case r.head:
			p.line("%s", p.styled(bold, r.text))
		case r.left == nil:
			p.line("  %s", p.styled(dim, r.text))
		default:
			text := []string{r.text}
			if p.width > 0 && utf8.RuneCountInString(r.text) > width {
				text = hanging(r.text, width)
			}
			p.row("  %-*s  %s  %9s  %7s", width, text[0],
				p.styled(notice, fmt.Sprintf("%9s", number(r.removed))), r.left[0], r.left[1])
			for _, more := range text[1:] {
				p.row("  %s", more)
			}
		}
		if r.note != "" {
			p.line("    %s", r.note)
		}
	}
	return p.err
}

// widestCondition is how wide the column of conditions is at most.
const widestCondition = 72

// host prints what the NUMA cells of a host lack.
func (p *printer) host(h candidates.HostExplanation) {
	p.line("")
	p.line("%s: %s", p.styled(bold, h.Host), h.Verdict)
	rows := make([][]string, 0, len(h.Cells))
	for _, c := range h.Cells {
		var free, lacks []string
		for _, class := range slices.Sorted(maps.Keys(c.Free)) {
			free = append(free, fmt.Sprintf("%s %d", class, c.Free[class]))
		}
		for _, l := range c.Lacks {
			lacks = append(lacks, cmp.Or(l.Suffix, "unsuffixed group")+": "+l.Reason)
		}
		rows = append(rows, []string{c.Provider, "free: " +
			cmp.Or(strings.Join(free, ", "), "nothing"), strings.Join(lacks, "; ")})
	}
	if len(rows) == 0 {
		return
	}
	p.grid("  ", grid{rows: rows, left: len(rows[0]), width: p.innerWidth(len("  "))})
}

// explainRow is a header, a condition with numbers, or a remark.
type explainRow struct {
	text, note string
	head       bool
	removed    int
	left       []string
}

// folded returns rows for the first step and those that remove something, and counts the others.
func folded(n int, row func(int) explainRow) []explainRow {
	rows := make([]explainRow, 0, n)
	without := 0
	for i := range n {
		r := row(i)
		if i > 0 && r.removed == 0 {
			without++
			continue
		}
		rows = append(rows, r)
	}
	switch {
	case without == 1:
		rows = append(rows, explainRow{text: "(1 more condition removes nothing)"})
	case without > 1:
		rows = append(rows, explainRow{text: fmt.Sprintf("(%d more conditions remove nothing)", without)})
	}
	return rows
}

func groupTitle(g candidates.GroupExplanation) string {
	name := "group " + g.Suffix
	if g.Suffix == "" {
		name = "unsuffixed group"
	}
	var amounts []string
	for class, amount := range g.Resources {
		amounts = append(amounts, fmt.Sprintf("%s:%d", class, amount))
	}
	if len(amounts) == 0 {
		return name + ", without resources"
	}
	slices.Sort(amounts)
	return name + ", " + strings.Join(amounts, ", ")
}

// number returns "" for 0.
func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}
