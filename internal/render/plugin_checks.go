// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/compute-agent/compute-agent/plugins/drivertest"
)

// PluginTest prints what became of the conformance checks of a plugin, and again at the end which failed. Checks that do not apply for
// the same reason share a line. width is how many characters fit in a line; 0 breaks none.
func PluginTest(w io.Writer, r drivertest.Report, width int) error {
	p := &printer{w: w}
	p.pluginHead(r)
	for _, group := range groups(r.Results) {
		p.line("")
		column := 0
		for _, res := range group {
			column = max(column, len(res.ID))
		}
		for rest := group; len(rest) > 0; {
			same := alike(rest)
			p.outcome(rest[:same], same == len(group), column, width)
			rest = rest[same:]
		}
	}
	p.line("")
	n := len(r.Results)
	p.line("%d %s: %d passed, %d failed, %d do not apply.", n, plural(n, "check", "checks"), r.Count(drivertest.Passed), r.Count(drivertest.Failed), r.Count(drivertest.DoesNotApply))
	p.failed(r, width)
	return p.err
}

// PluginFailures prints the checks that failed, and nothing else.
func PluginFailures(w io.Writer, r drivertest.Report, width int) error {
	p := &printer{w: w}
	for _, res := range r.Results {
		if res.Outcome == drivertest.Failed {
			p.outcome([]drivertest.Result{res}, false, len(res.ID), width)
		}
	}
	return p.err
}

// PluginChecks prints what the checks are about.
func PluginChecks(w io.Writer, checks []drivertest.Check) error {
	p := &printer{w: w}
	column := 0
	for _, c := range checks {
		column = max(column, len(c.ID))
	}
	for _, c := range checks {
		needs := ""
		if c.Needs != "" {
			needs = fmt.Sprintf(" (if it announces %q)", c.Needs)
		}
		p.line("%-*s  %s%s", column, c.ID, c.Title, needs)
	}
	return p.err
}

// groups are runs of results whose IDs begin with the same word.
func groups(results []drivertest.Result) [][]drivertest.Result {
	var out [][]drivertest.Result
	last := ""
	for _, r := range results {
		if g := groupOf(r); len(out) == 0 || g != last {
			last = g
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], r)
	}
	return out
}

func groupOf(r drivertest.Result) string {
	group, _, _ := strings.Cut(r.ID, "/")
	return group
}

// alike is how many results at the begin of a group are told in one line.
func alike(group []drivertest.Result) int {
	n := 1
	for n < len(group) && group[0].Outcome == drivertest.DoesNotApply && group[n].Outcome == drivertest.DoesNotApply && group[n].Why == group[0].Why {
		n++
	}
	return n
}

// outcome prints one result, or several that do not apply for the same reason; whole says that they are a whole group.
func (p *printer) outcome(results []drivertest.Result, whole bool, column, width int) {
	r, n := results[0], len(results)
	switch {
	case r.Outcome == drivertest.Passed:
		p.hang(fmt.Sprintf("  ok    %-*s  ", column, r.ID), r.Title, width)
	case r.Outcome == drivertest.Failed:
		p.hang(fmt.Sprintf("  FAIL  %-*s  ", column, r.ID), r.Title, width)
		for row := range strings.Lines(r.Explain()) {
			row = visible(strings.TrimRight(row, "\n"))
			label := min(len("protects: "), len(row)) // what Explain indents by
			p.hang("          "+row[:label], row[label:], width)
		}
	case n == 1:
		p.hang(fmt.Sprintf("  -     %-*s  ", column, r.ID), "does not apply: "+visible(oneLine(r.Why)), width)
	default:
		id := r.ID + ", " + strings.TrimPrefix(results[n-1].ID, groupOf(r)+"/")
		if n > 2 {
			id = r.ID + " ... " + strings.TrimPrefix(results[n-1].ID, groupOf(r)+"/")
		}
		if whole {
			id = groupOf(r) + "/*"
		}
		p.hang(fmt.Sprintf("  -     %s  ", id), fmt.Sprintf("%d checks do not apply: %s", n, visible(oneLine(r.Why))), width)
	}
}

// hang prints a text behind its begin, and breaks it into lines of at most width characters below each other. Where there is hardly
// room beside the begin, further lines are only indented.
func (p *printer) hang(begin, text string, width int) {
	const narrow = 24
	indent := len([]rune(begin))
	if width <= 0 || indent+len([]rune(text)) <= width {
		p.line("%s%s", begin, text)
		return
	}
	if width-indent < narrow {
		if strings.TrimSpace(begin) != "" {
			p.line("%s", begin)
		}
		indent = 10
		begin = strings.Repeat(" ", indent)
	}
	for _, row := range wrapText(text, max(width-indent, narrow)) {
		p.line("%s%s", begin, row)
		begin = strings.Repeat(" ", indent)
	}
}

// failed names the checks that failed, and how to run them alone.
func (p *printer) failed(r drivertest.Report, width int) {
	var ids, quoted []string
	for _, res := range r.Results {
		if res.Outcome == drivertest.Failed {
			ids, quoted = append(ids, res.ID), append(quoted, regexp.QuoteMeta(res.ID))
		}
	}
	if len(ids) == 0 {
		return
	}
	p.hang("Failed: ", strings.Join(ids, ", "), width)
	pick := quoted[0]
	if len(quoted) > 1 {
		pick = "(" + strings.Join(quoted, "|") + ")"
	}
	p.line("Only %s again: the same command with --run '^%s$'", plural(len(ids), "this", "these"), pick)
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}
