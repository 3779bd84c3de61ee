// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/agent"
	"github.com/compute-agent/compute-agent/plugins/drivertest"
)

// newPluginTest puts the conformance suite to a plugin.
func newPluginTest() *cobra.Command {
	var opts options
	var ex examined
	var junit, image string
	var list, instances, failFast bool
	var limit, checkLimit time.Duration
	cmd := &cobra.Command{
		Use: "test PATH", Short: "Check whether a driver does all that an agent relies on",
		Args: func(cmd *cobra.Command, args []string) error {
			if list {
				return cobra.NoArgs(cmd, args)
			}
			return cobra.ExactArgs(1)(cmd, args)
		},
		Long: "Start a driver's plugin as the agent does and check whether it does all that an agent relies on. No Placement takes part, and\n" +
			"nothing is installed. Of a check that fails it is told what was sent, what came, what the contract says and where to look.\n\n" +
			"--config takes a file with the driver's own keys (what is below [drivers.NAME.config]), or one for conf.d with that table in it.\n" +
			"It must be a configuration with which the driver knows its nodes on this machine.\n\n" +
			"A reshape is tried from the tree that the driver's last release makes, whose executable --former names, or from the tree that the driver\n" +
			"makes with --former-config; with both, the last release gets that configuration. Without either it is tried from the driver's own tree\n" +
			"with all inventory on the root, if the driver knows such a shape, and only the classes that it moves are judged.\n\n" +
			"Of a driver that manages instances, those are tried with --instances only: the suite then makes some small ones on this machine,\n" +
			"with made-up uuids and names that begin with drivertest-, and removes them.\n\n" +
			"Each check is shown when it is over. Where standard error is no terminal, a check that takes long is named there every ten seconds.\n\n" +
			"The exit code is 0 if no check failed, 1 if one did, the time of --timeout ran out or the command was interrupted, 64 if there was nothing\n" +
			"to check, 78 if the file of --config is invalid or another driver's. Names of classes and traits that no list of standard ones has are\n" +
			"warnings, and no failure.",
		Example: "  compute-agent plugin test ./compute-driver-mine --config mine.toml\n" +
			"  compute-agent plugin test ./compute-driver-mine --config mine.toml --run '^reshape/'\n" +
			"  compute-agent plugin test ./compute-driver-mine --config mine.toml --former ./last-release/compute-driver-mine\n" +
			"  compute-agent plugin test ./compute-driver-mine --config mine.toml --timeout 5m --fail-fast\n" +
			"  compute-agent plugin test ./compute-driver-mine --config mine.toml --junit report.xml\n" +
			"  compute-agent plugin test --list",
		RunE: func(cmd *cobra.Command, args []string) error {
			checks, err := ex.checks()
			if err != nil {
				return err
			}
			if list {
				if opts.json() {
					return printJSON(cmd.OutOrStdout(), checks)
				}
				return render.PluginChecks(cmd.OutOrStdout(), checks)
			}
			o, err := ex.options(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if instances || image != "" {
				o.Instances = &drivertest.InstanceTemplate{Image: image}
			}
			if limit < 0 || checkLimit < 0 {
				return &exitError{exitUsage, errors.New("--timeout and --check-timeout: a time limit is not negative")}
			}
			o.Timeout, o.CheckTimeout, o.FailFast = limit, checkLimit, failFast
			return tested(cmd, o, checks, junit, opts.json())
		},
	}
	ex.addConfig(cmd)
	cmd.Flags().StringVar(&ex.release, "former", "", "`PATH` of the last release's executable, whose tree a reshape is tried from")
	cmd.Flags().DurationVar(&limit, "timeout", 0, "time `LIMIT` of the whole suite, 0 for none")
	cmd.Flags().DurationVar(&checkLimit, "check-timeout", 5*time.Minute, "time `LIMIT` of each check")
	cmd.Flags().BoolVar(&failFast, "fail-fast", false, "end with the first check that fails")
	cmd.Flags().StringVar(&ex.former, "former-config", "", "`FILE` with a configuration whose tree needs a reshape with that of --config")
	cmd.Flags().StringVar(&ex.run, "run", "", "only the checks whose ID matches `REGEX`")
	cmd.Flags().StringVar(&junit, "junit", "", "write the report as JUnit XML to `FILE` too")
	cmd.Flags().BoolVar(&instances, "instances", false, "let the suite make and remove instances on this machine")
	cmd.Flags().StringVar(&image, "instance-image", "", "what names an `IMAGE` to the driver, for the instances of the suite; implies --instances")
	cmd.Flags().BoolVar(&list, "list", false, "list the checks, or those that --run picks, instead of running them")
	opts.addOutputFlag(cmd)
	return cmd
}

// checks are those that --run picks: none is wrong usage.
func (e *examined) checks() ([]drivertest.Check, error) {
	picked, err := e.picked()
	if err != nil {
		return nil, err
	}
	var out []drivertest.Check
	for _, c := range drivertest.Suite() {
		if picked == nil || picked.MatchString(c.ID) {
			out = append(out, c)
		}
	}
	if len(out) == 0 {
		return nil, &exitError{exitUsage, fmt.Errorf("--run %q: no check has such an ID; `compute-agent plugin test --list` shows them", e.run)}
	}
	return out, nil
}

// picked is --run, nil for all.
func (e *examined) picked() (*regexp.Regexp, error) {
	if e.run == "" {
		return nil, nil
	}
	picked, err := regexp.Compile(e.run)
	if err != nil {
		return nil, &exitError{exitUsage, fmt.Errorf("--run: %w", err)}
	}
	return picked, nil
}

// tested runs the checks and prints what becomes of them as it comes.
func tested(cmd *cobra.Command, o drivertest.Options, checks []drivertest.Check, junit string, asJSON bool) error {
	out := cmd.OutOrStdout()
	text := render.NewPluginTest(out, checks, terminalWidth(out))
	progress := newProgress(cmd.ErrOrStderr(), checks, asJSON)
	defer progress.end()
	o.Started = func(r drivertest.Report) {
		progress.shown(func() {
			if !asJSON {
				text.Begin(r)
			}
		})
	}
	o.Each = func(r drivertest.Result) {
		progress.made(func() {
			if !asJSON {
				text.Result(r)
			}
		})
	}
	report, err := drivertest.Execute(cmd.Context(), o)
	progress.end()
	var none *drivertest.FormerError
	switch {
	case errors.As(err, &none):
		return &exitError{exitUsage, fmt.Errorf("--former: %w", err)}
	case err != nil && cmd.Context().Err() == nil:
		return err
	case err != nil && asJSON:
	case err != nil:
		if err := text.Flush(); err != nil {
			return err
		}
	}
	if err != nil {
		return fmt.Errorf("interrupted after %d of %d checks; %d failed until then", len(report.Results), len(checks), report.Count(drivertest.Failed))
	}
	if junit != "" {
		if err := writeFile(junit, report.WriteJUnit); err != nil {
			return fmt.Errorf("--junit: %w", err)
		}
	}
	if warnings := agent.UnknownStandardNames(report.Classes, report.Traits); asJSON {
		err = printJSON(out, struct {
			drivertest.Report
			Warnings []string `json:"warnings,omitempty"`
		}{report, warnings})
	} else {
		err = text.End(report, warnings)
	}
	if err == nil && report.Count(drivertest.Failed) > 0 {
		return &exitError{code: exitFailed}
	}
	return err
}

// terminalWidth is how many characters fit in a line of w, 0 if it is no terminal: then lines are not broken.
func terminalWidth(w io.Writer) int {
	f, ok := below(w).(*os.File)
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// slowAfter is how often a check that takes long is named where there is no terminal.
const slowAfter = 10 * time.Second

// progress says on standard error which check runs: on a terminal always, elsewhere when it takes
// long. A driver that hangs has one take minutes.
type progress struct {
	w        io.Writer
	terminal bool
	stop     chan struct{}
	over     sync.WaitGroup

	mu     sync.Mutex
	checks []drivertest.Check
	n      int
	ended  bool
}

func newProgress(w io.Writer, checks []drivertest.Check, quiet bool) *progress {
	p := &progress{w: w, checks: checks, stop: make(chan struct{})}
	if f, is := below(w).(*os.File); is && !quiet && term.IsTerminal(int(f.Fd())) {
		p.w, p.terminal = f, true // its control characters move the cursor
	} else {
		p.over.Go(p.nameSlow)
	}
	p.show()
	return p
}

// nameSlow names the check that runs if it is the same as the last time.
func (p *progress) nameSlow() {
	tick := time.NewTicker(slowAfter)
	defer tick.Stop()
	last, since := -1, time.Duration(0)
	for {
		select {
		case <-tick.C:
		case <-p.stop:
			return
		}
		p.mu.Lock()
		since += slowAfter
		if p.n != last {
			last, since = p.n, 0
		}
		if since > 0 && p.n < len(p.checks) {
			_, _ = fmt.Fprintf(p.w, "%d of %d: %s has been running for %v or more\n", p.n+1, len(p.checks), p.checks[p.n].ID, since)
		}
		p.mu.Unlock()
	}
}

// shown prints something else, and then again which check runs.
func (p *progress) shown(print func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	print()
	p.show()
}

// made is shown for a check that is over.
func (p *progress) made(print func()) {
	p.mu.Lock()
	p.n++
	p.mu.Unlock()
	p.shown(print)
}

func (p *progress) show() {
	if p.terminal && p.n < len(p.checks) {
		_, _ = fmt.Fprintf(p.w, "\r\x1b[K%d of %d: %s", p.n+1, len(p.checks), p.checks[p.n].ID)
	}
}

// clear takes the line away.
func (p *progress) clear() {
	if p.terminal {
		_, _ = io.WriteString(p.w, "\r\x1b[K")
	}
}

// end takes the line away for good. It may be called again.
func (p *progress) end() {
	p.mu.Lock()
	if !p.ended {
		p.ended = true
		close(p.stop)
		p.clear()
	}
	p.mu.Unlock()
	p.over.Wait()
}

func writeFile(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}
