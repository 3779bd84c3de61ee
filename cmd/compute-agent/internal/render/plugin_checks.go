// SPDX-License-Identifier: Apache-2.0

package render

import (
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/internal/pluginhost/launch"
	"github.com/compute-agent/compute-agent/internal/pluginhost/trial"
)

// PluginTest prints the report of a conformance run as it progresses: the plugin, a line for each
// finished check, and a summary. Consecutive checks that are not run for the same reason share a
// line.
type PluginTest struct {
	p        *printer
	width    int
	columns  map[string]int // by group: the longest ID
	sizes    map[string]int // by group: how many checks
	last     string         // group
	held     []trial.Result
	progress *checkProgress
}

// NewPluginTest prints results to w. To notes it prints which check runs: on a [Terminal] always,
// elsewhere if the check is slow. checks are all checks that will run; width is the width of lines,
// 0 for no limit. Close it.
func NewPluginTest(w, notes io.Writer, checks []trial.Check, width int) *PluginTest {
	t := &PluginTest{p: newPrinter(w), width: width, columns: map[string]int{}, sizes: map[string]int{},
		progress: newCheckProgress(notes, checks)}
	for _, c := range checks {
		group := groupOf(c.ID)
		t.columns[group] = max(t.columns[group], len(c.ID))
		t.sizes[group]++
	}
	return t
}

// Begin prints the plugin's description.
func (t *PluginTest) Begin(r trial.Report) {
	t.progress.printAbove(0, func() { t.p.pluginHead(r.Description) })
}

// Result prints the result of a check.
func (t *PluginTest) Result(r trial.Result) {
	t.progress.printAbove(1, func() { t.result(r) })
}

func (t *PluginTest) result(r trial.Result) {
	group := groupOf(r.ID)
	if len(t.held) > 0 && (group != t.last || r.Outcome != trial.NotRun || r.Why != t.held[0].Why) {
		t.release()
	}
	if group != t.last {
		t.p.line("")
		t.last = group
	}
	t.held = append(t.held, r)
	if r.Outcome != trial.NotRun {
		t.release()
	}
}

// Close ends what notes show. It may be called again.
func (t *PluginTest) Close() { t.progress.end() }

// release prints held results.
func (t *PluginTest) release() {
	if len(t.held) > 0 {
		t.p.outcome(t.held, len(t.held) == t.sizes[t.last], t.columns[t.last], t.width)
		t.held = nil
	}
}

// Flush prints held results at the end, and returns the first write error.
func (t *PluginTest) Flush() error {
	t.Close()
	t.release()
	return t.p.err
}

// End prints warnings and the summary.
func (t *PluginTest) End(r trial.Report, warnings []string) error {
	t.Close()
	t.release()
	if len(warnings) > 0 {
		t.p.line("")
		t.p.notes("", warnings)
	}
	t.p.line("")
	passed, failed, not := r.Count(trial.Passed), r.Count(trial.Failed), r.Count(trial.NotRun)
	t.p.line("%s: %d passed, %d failed, %d not run.", textutil.Count(len(r.Results), "check"), passed, failed, not)
	if r.Ended != "" {
		t.p.line("The suite ended early: %s.", r.Ended)
	}
	t.p.failed(r, t.width)
	t.p.confinement(r, t.width)
	return t.p.err
}

// confinement says what the sandbox may have to do with the result.
func (p *printer) confinement(r trial.Report, width int) {
	switch {
	case r.Sandbox == "":
	case r.Unconfined():
		p.hang("", "The driver ran WITHOUT THE AGENT'S SANDBOX: nothing is known of what the agent would refuse it. "+
			"Run the suite in the sandbox before a release.", width)
	case r.Count(trial.Failed) > 0:
		p.hang("", "The driver ran in the agent's sandbox. If a file or a call was refused: docs/drivers.md, The "+
			"sandbox, says what a driver may do; "+
			"--no-sandbox shows whether it is the reason.", width)
	}
}

// PluginSandbox warns of what a driver that is tried may do here that the agent would not let it
// do. why is what asks for no sandbox.
func PluginSandbox(w io.Writer, opts trial.SuiteOptions, kernel launch.Kernel, why string) error {
	p := newPrinter(w)
	switch lacks := kernel.Lacks(); {
	case opts.NoSandbox:
		p.line("WARNING: %s: the driver runs WITHOUT THE SANDBOX in which the agent starts drivers. It can read and "+
			"change all that you can, "+
			"and what works here can be refused on a host (docs/drivers.md, The sandbox).", why)
	case len(lacks) > 0:
		p.line("WARNING: the sandbox of drivers is incomplete on this machine (%s): %s. What works here can be "+
			"refused on a host.",
			kernel, strings.Join(lacks, "; "))
	}
	return p.err
}

// PluginChecks lists checks.
func PluginChecks(w io.Writer, checks []trial.Check) error {
	p := newPrinter(w)
	column := 0
	for _, c := range checks {
		column = max(column, len(c.ID))
	}
	for _, c := range checks {
		needs := ""
		if c.Needs != "" {
			needs = fmt.Sprintf(" (if the driver has the capability %q)", c.Needs)
		}
		p.line("%-*s  %s%s", column, c.ID, c.Title, needs)
	}
	return p.err
}

func groupOf(id string) string {
	group, _, _ := strings.Cut(id, "/")
	return group
}

// outcome prints one result, or several that are not run for the same reason. whole means that
// they are a complete group.
func (p *printer) outcome(results []trial.Result, whole bool, column, width int) {
	r, n := results[0], len(results)
	switch {
	case r.Outcome == trial.Passed:
		p.hang(fmt.Sprintf("  ok    %-*s  ", column, r.ID), r.Title, width)
	case r.Outcome == trial.Failed:
		p.hang(fmt.Sprintf("  FAIL  %-*s  ", column, r.ID), r.Title, width)
		for row := range strings.Lines(r.Explain()) {
			row = untabbed(strings.TrimRight(row, "\n"))
			label := min(len("protects: "), len(row)) // the indentation of Explain
			p.hang("          "+row[:label], row[label:], width)
		}
	case n == 1:
		p.hang(fmt.Sprintf("  -     %-*s  ", column, r.ID), "not run: "+oneLine(r.Why), width)
	default:
		id := r.ID + ", " + strings.TrimPrefix(results[n-1].ID, groupOf(r.ID)+"/")
		if n > 2 {
			id = r.ID + " ... " + strings.TrimPrefix(results[n-1].ID, groupOf(r.ID)+"/")
		}
		if whole {
			id = groupOf(r.ID) + "/*"
		}
		p.hang(fmt.Sprintf("  -     %s  ", id), fmt.Sprintf("%d checks not run: %s", n, oneLine(r.Why)), width)
	}
}

// hang prints text with a hanging indent of the length of begin, wrapped to width. With a long
// begin, the text starts on its own line.
func (p *printer) hang(begin, text string, width int) {
	indent := len([]rune(begin))
	if width <= 0 || indent+len([]rune(text)) <= width {
		p.line("%s%s", begin, text)
		return
	}
	if width-indent < narrowest {
		if strings.TrimSpace(begin) != "" {
			p.line("%s", begin)
		}
		indent = 10
		begin = strings.Repeat(" ", indent)
	}
	for _, row := range wrapText(text, max(width-indent, narrowest)) {
		p.line("%s%s", begin, row)
		begin = strings.Repeat(" ", indent)
	}
}

// failed lists the failed checks, and how to run only them.
func (p *printer) failed(r trial.Report, width int) {
	var ids, quoted []string
	for _, res := range r.Results {
		if res.Outcome == trial.Failed {
			ids, quoted = append(ids, res.ID), append(quoted, regexp.QuoteMeta(res.ID))
		}
	}
	if len(ids) == 0 {
		return
	}
	p.hang("Failed: ", strings.Join(ids, ", "), width)
	these, pattern := "this", quoted[0]
	if len(quoted) > 1 {
		these, pattern = "these", "("+strings.Join(quoted, "|")+")"
	}
	p.line("To run only %s: the same command with --run '^%s$'", these, pattern)
}
