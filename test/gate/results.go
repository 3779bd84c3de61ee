// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/compute-agent/compute-agent/test/testproc"
)

const module = "github.com/compute-agent/compute-agent/"

// event is one of go test -json (go doc test2json).
type event struct {
	Action     string
	Package    string
	ImportPath string // of build-output
	Test       string
	Elapsed    float64 // seconds
	Output     string
}

// results are those of packages, in the order in which they ended.
type results struct {
	Packages []*result

	open map[string]*result
}

// result is that of a package.
type result struct {
	Name    string
	Seconds float64
	Passed  bool
	Tests   int               // top-level ones that ran
	NotRun  map[string]string // tests and why
	Flaky   []string          // tests that passed when they were repeated
	Left    []string          // tests that other commits run (testproc.Drawn)
	Said    map[string]string // tests that failed, and what they said themselves

	running map[string]bool          // top-level tests that have begun and are not paused
	output  map[string]*bytes.Buffer // of tests that have not passed yet; "" is the package's own
	failed  []string                 // top-level tests
}

func (r *result) short() string { return strings.TrimPrefix(r.Name, module) }

func (r *results) add(out io.Writer, e event) {
	if e.Action == "build-output" {
		_, _ = io.WriteString(out, e.Output)
		return
	}
	if e.Package == "" {
		return
	}
	p := r.open[e.Package]
	if p == nil {
		p = &result{Name: e.Package, NotRun: map[string]string{}, running: map[string]bool{},
			output: map[string]*bytes.Buffer{}}
		if r.open == nil {
			r.open = map[string]*result{}
		}
		r.open[e.Package] = p
	}
	topLevel := e.Test != "" && !strings.Contains(e.Test, "/")
	switch e.Action {
	case "run", "cont":
		if topLevel {
			p.running[e.Test] = true
		}
	case "pause":
		delete(p.running, e.Test)
	case "output":
		if p.output[e.Test] == nil {
			p.output[e.Test] = &bytes.Buffer{}
		}
		p.output[e.Test].WriteString(e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			p.Passed, p.Seconds = e.Action != "fail", e.Elapsed
			p.print(out, e.Action)
			r.Packages = append(r.Packages, p)
			delete(r.open, e.Package)
			return
		}
		delete(p.running, e.Test)
		p.ended(e.Test, e.Action, topLevel)
	}
}

// ended takes the end of a test.
func (r *result) ended(test, action string, topLevel bool) {
	if topLevel && action != "skip" {
		r.Tests++
	}
	text := ""
	if b := r.output[test]; b != nil {
		text = b.String()
	}
	if _, why, found := strings.Cut(text, testproc.NotTested); found && action != "pass" {
		r.NotRun[test], _, _ = strings.Cut(why, "\n")
	}
	if action == "skip" && strings.Contains(text, testproc.DrawnElsewhere) {
		r.Left = append(r.Left, test)
	}
	switch {
	case action != "fail":
		delete(r.output, test)
	default:
		if r.Said == nil {
			r.Said = map[string]string{}
		}
		r.Said[test] = said(text)
		if topLevel {
			r.failed = append(r.failed, test)
		}
	}
}

var (
	// log is the first line of what a test logs: "    agent_test.go:12: …".
	log = regexp.MustCompile(`^ +[\w-]+\.go:\d+: `)
	// process is the first line of what [testproc.Process.Show] logs: whole logs of processes.
	process = regexp.MustCompile(`^ +[\w-]+\.go:\d+: output of `)
)

// said returns what a test that failed says itself, without the outputs of its processes: its first
// lines, shortened.
func said(text string) string {
	const lines, length = 8, 400
	var out []string
	own := false
	for line := range strings.Lines(text) {
		if log.MatchString(line) {
			own = !process.MatchString(line)
		}
		if !own || strings.HasPrefix(line, "---") || strings.HasPrefix(line, "===") {
			continue
		}
		if len(out) == lines {
			break
		}
		line = strings.TrimSpace(line)
		if len(line) > length {
			line = strings.ToValidUTF8(line[:length], "") + " […]"
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}

// print prints the line of a package, after the output of tests that failed, or had not ended when
// the package did.
func (r *result) print(out io.Writer, action string) {
	switch {
	case action == "skip" || action == "pass" && r.Tests == 0: // no tests, or none that was selected
	case r.Passed:
		fmt.Fprintf(out, "ok    %-42s %7.1fs %5d tests\n", r.short(), r.Seconds, r.Tests)
	default:
		own := r.output[""]
		delete(r.output, "")
		for _, test := range sortedKeys(r.output) {
			writeLines(out, r.output[test])
		}
		if own != nil { // a panic, or what TestMain prints
			writeLines(out, own)
		}
		fmt.Fprintf(out, "FAIL  %-42s %7.1fs %5d tests\n", r.short(), r.Seconds, r.Tests)
	}
}

// few is how many running tests of a package writeProgress names: those to look at if it stands
// still.
const few = 3

// writeProgress says what goes on, where no package has ended for a while.
func (r *results) writeProgress(out io.Writer) {
	running := make([]string, 0, len(r.open))
	for _, p := range r.open {
		name := p.short()
		if tests := sortedKeys(p.running); len(tests) > 0 && len(tests) <= few {
			name += " (" + strings.Join(tests, ", ") + ")"
		}
		running = append(running, name)
	}
	slices.Sort(running)
	doing := "compiling"
	if len(running) > 0 {
		doing = "running " + strings.Join(running, ", ")
	}
	fmt.Fprintf(out, "...   %s; %d packages have ended\n", doing, len(r.Packages))
}

// writeLines writes what a test wrote, without the lines of go test about its course.
func writeLines(out io.Writer, text *bytes.Buffer) {
	for line := range strings.Lines(text.String()) {
		if !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(line, "FAIL") {
			_, _ = io.WriteString(out, line)
		}
	}
}

// onlyFlaky returns the tests that failed, if all of them are marked as flaky.
func (r *result) onlyFlaky() []string {
	for _, test := range r.failed {
		if !bytes.Contains(r.output[test].Bytes(), []byte(testproc.FlakyTest)) {
			return nil
		}
	}
	return r.failed
}

// repeat takes the result of the second run of the flaky tests.
func (r *result) repeat(second *results) {
	if second.passed() && len(second.Packages) == 1 && second.Packages[0].Tests == len(r.failed) {
		r.Passed, r.Flaky = true, r.failed
	}
}

func (r *results) passed() bool {
	return len(r.open) == 0 && !slices.ContainsFunc(r.Packages, func(p *result) bool { return !p.Passed })
}

// verdict sums up: "2,301 tests of 80 packages passed", or which packages failed.
func (r *results) verdict() string {
	tests, packages := 0, 0
	var failed, flaky []string
	for _, p := range r.Packages {
		if p.Tests > 0 {
			tests, packages = tests+p.Tests, packages+1
		}
		if !p.Passed {
			failed = append(failed, p.short())
		}
		flaky = append(flaky, p.Flaky...)
	}
	failed = append(failed, sortedKeys(r.open)...)
	text := fmt.Sprintf("%d tests of %d packages passed", tests, packages)
	if len(failed) > 0 {
		text = fmt.Sprintf("FAILED: %d of %d packages: %s",
			len(failed), max(packages, len(failed)), strings.Join(failed, " "))
	}
	if len(flaky) > 0 {
		text += fmt.Sprintf("; %d only when repeated: %s", len(flaky), strings.Join(flaky, ", "))
	}
	return text
}

// writeNotRun writes a table of the tests that did not run, if there are any.
func (r *results) writeNotRun(out io.Writer) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	n := 0
	for _, p := range r.Packages {
		for _, test := range sortedKeys(p.NotRun) {
			if n++; n == 1 {
				fmt.Fprintln(out, "\nNot run on this machine:")
			}
			fmt.Fprintf(table, "  %s\t%s\t%s\n", p.short(), test, p.NotRun[test])
		}
	}
	_ = table.Flush() // errors of the output are the caller's
	if n > 0 {
		fmt.Fprintln(out)
	}
}

// writeFailed writes the tests that failed, with what they said: the output of their processes may
// be many pages, and is above.
func (r *results) writeFailed(out io.Writer) {
	for _, p := range r.Packages {
		for _, test := range sortedKeys(p.Said) {
			if p.Said[test] == "" || slices.Contains(p.Flaky, test) {
				continue // it is its subtests that failed
			}
			fmt.Fprintf(out, "FAILED: %s of %s:\n", test, p.short())
			for line := range strings.Lines(p.Said[test]) {
				fmt.Fprintf(out, "    %s", line)
			}
			fmt.Fprintln(out)
		}
	}
}

// slowest is how many packages writeSlowest names.
const slowest = 10

func (r *results) writeSlowest(out io.Writer) {
	byTime := slices.SortedFunc(slices.Values(r.Packages),
		func(a, b *result) int { return cmp.Compare(b.Seconds, a.Seconds) })
	fmt.Fprintln(out, "The slowest packages (wall time, beside others):")
	for _, p := range byTime[:min(slowest, len(byTime))] {
		fmt.Fprintf(out, "  %-42s %7.1fs %5d tests\n", p.short(), p.Seconds, p.Tests)
	}
	repeated := 0
	for _, p := range r.Packages {
		repeated += len(p.Flaky)
	}
	fmt.Fprintf(out, "Flaky tests that passed only when they were repeated: %d\n", repeated)
}

// writeLeft names the tests that other commits run.
func (r *results) writeLeft(out io.Writer) {
	var left []string
	for _, p := range r.Packages {
		left = append(left, p.Left...)
	}
	if len(left) > 0 {
		fmt.Fprintf(out, "Left to other commits: %s\n", strings.Join(left, ", "))
	}
}

// append adds the results to a report, if its path is not empty.
func (r *results) append(path string) error {
	if path == "" {
		return nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	encoder := json.NewEncoder(f)
	for _, p := range r.Packages {
		if p.Tests > 0 || len(p.NotRun) > 0 || len(p.Left) > 0 || !p.Passed {
			err = errors.Join(err, encoder.Encode(p))
		}
	}
	return errors.Join(err, f.Close())
}

func readReport(path string) (*results, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the report that TEST_REPORT names: %w", err)
	}
	defer func() { _ = f.Close() }()
	r := &results{}
	for decoder := json.NewDecoder(f); ; {
		var p result
		switch err := decoder.Decode(&p); {
		case errors.Is(err, io.EOF):
			return r, nil
		case err != nil:
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		r.Packages = append(r.Packages, &p)
	}
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
