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
	"github.com/compute-agent/compute-agent/internal/pluginhost/suite"
)

// newPluginTest runs the conformance suite on a plugin.
func newPluginTest() *cobra.Command {
	var opts options
	var ex examined
	var junit, image string
	var list, instances, failFast bool
	var limit, checkLimit time.Duration
	cmd := &cobra.Command{
		Use: "test PATH", Short: "Check whether a driver meets the agent's contract",
		Args: func(cmd *cobra.Command, args []string) error {
			if list {
				return cobra.NoArgs(cmd, args)
			}
			return cobra.ExactArgs(1)(cmd, args)
		},
		Long: "Start a driver's plugin as the agent does and check that it meets the agent's contract. Placement is not involved, and nothing is\n" +
			"installed. For each check that fails, the output shows what was sent, what was received, the rule, and where to look. Checks that\n" +
			"are not run say why, and are counted apart: nothing is known of the driver there.\n\n" +
			"The driver runs in the sandbox in which the agent starts it: it writes only to the directories of guests, to the absolute paths in\n" +
			"its own configuration, to temporary files and devices (docs/drivers.md, The sandbox); a conf.d file can allow more. What the\n" +
			"agent's user and unit may do is not part of it.\n\n" +
			"--config takes a file with the driver's own keys (the content of [drivers.NAME.config]), or a conf.d file with that table. With this\n" +
			"configuration the driver must list nodes on this machine.\n\n" +
			"Reshapes start from the tree of the driver's last release, whose executable --former names, or from the tree that the driver\n" +
			"makes with --former-config; with both, the last release gets that configuration. Without either they start from the driver's own\n" +
			"tree with all inventory on the root, if the driver accepts such a layout, and only the classes that it moves are checked.\n\n" +
			"Instances of a driver that manages them are only tested with --instances: the suite creates some small ones on this machine, with\n" +
			"random uuids and names that begin with drivertest-, and removes them.\n\n" +
			"Each check is printed when it ends. If standard error is not a terminal, a slow check is named there every ten seconds.\n\n" +
			"The exit code is 0 if no check failed; 1 if a check failed, --timeout expired or the command was interrupted; 64 if there was\n" +
			"nothing to check; 78 if the file of --config is invalid or is for another driver. Names of classes and traits that are not\n" +
			"standard are warnings, not failures.",
		Example: "  compute-agent plugin test ./compute-driver-mine --config mine.toml\n" +
			"  compute-agent plugin test ./compute-driver-mine --config mine.toml --run '^reshape/'\n" +
			"  compute-agent plugin test ./compute-driver-mine --config mine.toml --former ./last-release/compute-driver-mine\n" +
			"  compute-agent plugin test ./compute-driver-mine --config mine.toml --timeout 5m --fail-fast\n" +
			"  compute-agent plugin test ./compute-driver-mine --config mine.toml --junit report.xml\n" +
			"  compute-agent plugin test --list",
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := ex.selected(); err != nil {
				return err
			}
			process, err := suite.Start(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			defer process.Close()
			checks, err := ex.checks(process.Checks)
			if err != nil {
				return err
			}
			if list {
				if opts.json() {
					return printJSON(cmd.OutOrStdout(), checks)
				}
				return render.PluginChecks(screen(cmd.OutOrStdout()), checks)
			}
			o, err := ex.options(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			o.Instances, o.Image = instances || image != "", image
			if limit < 0 || checkLimit < 0 {
				return &exitError{exitUsage, errors.New("--timeout and --check-timeout must not be negative")}
			}
			o.Timeout, o.CheckTimeout, o.FailFast = limit, checkLimit, failFast
			ex.sayConfinement(cmd.ErrOrStderr(), o)
			return tested(cmd, process, o, checks, junit, opts.json())
		},
	}
	ex.addConfig(cmd)
	cmd.Flags().StringVar(&ex.release, "former", "", "`PATH` of the last release's executable; reshapes start from its tree")
	cmd.Flags().DurationVar(&limit, "timeout", 0, "time `LIMIT` of the whole suite, 0 for none")
	cmd.Flags().DurationVar(&checkLimit, "check-timeout", 5*time.Minute, "time `LIMIT` of each check")
	cmd.Flags().BoolVar(&failFast, "fail-fast", false, "stop at the first check that fails")
	cmd.Flags().StringVar(&ex.former, "former-config", "", "`FILE` with a configuration whose tree needs a reshape to that of --config")
	cmd.Flags().StringVar(&ex.run, "run", "", "run only checks whose ID matches `REGEX`")
	cmd.Flags().StringVar(&junit, "junit", "", "also write the report as JUnit XML to `FILE`")
	cmd.Flags().BoolVar(&instances, "instances", false, "let the suite create and remove instances on this machine")
	cmd.Flags().StringVar(&image, "instance-image", "", "`IMAGE` for the instances of the suite; implies --instances")
	cmd.Flags().BoolVar(&list, "list", false, "list the checks that would run, instead of running them")
	opts.addOutputFlag(cmd)
	return cmd
}

// checks returns the checks that --run selects. It is wrong usage if there are none.
func (e *examined) checks(all []suite.Check) ([]suite.Check, error) {
	selected, err := e.selected()
	if err != nil {
		return nil, err
	}
	var out []suite.Check
	for _, c := range all {
		if selected == nil || c.In(selected) {
			out = append(out, c)
		}
	}
	if len(out) == 0 {
		return nil, &exitError{exitUsage, fmt.Errorf("--run %q matches no check; `compute-agent plugin test --list` lists them", e.run)}
	}
	return out, nil
}

// selected returns the expression of --run, nil for all.
func (e *examined) selected() (*regexp.Regexp, error) {
	if e.run == "" {
		return nil, nil
	}
	selected, err := regexp.Compile(e.run)
	if err != nil {
		return nil, &exitError{exitUsage, fmt.Errorf("--run: %w", err)}
	}
	return selected, nil
}

// tested runs the checks and prints each result as it arrives.
func tested(cmd *cobra.Command, process *suite.Process, o suite.Options, checks []suite.Check, junit string, asJSON bool) error {
	out := cmd.OutOrStdout()
	text := render.NewPluginTest(out, checks, terminalWidth(out))
	progress := newProgress(cmd.ErrOrStderr(), checks, asJSON)
	defer progress.end()
	started := func(r suite.Report) {
		progress.shown(func() {
			if !asJSON {
				text.Begin(r)
			}
		})
	}
	each := func(r suite.Result) {
		progress.made(func() {
			if !asJSON {
				text.Result(r)
			}
		})
	}
	report, err := process.Run(cmd.Context(), o, started, each)
	progress.end()
	var none *suite.FormerError
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
		return fmt.Errorf("interrupted after %d of %d checks; %d of them failed", len(report.Results), len(checks), report.Count(suite.Failed))
	}
	if junit != "" {
		if err := writeFile(junit, report.WriteJUnit); err != nil {
			return fmt.Errorf("--junit: %w", err)
		}
	}
	if warnings := agent.UnknownStandardNames(report.Classes, report.Traits); asJSON {
		err = printJSON(out, struct {
			suite.Report
			Warnings []string `json:"warnings,omitempty"`
		}{report, warnings})
	} else {
		err = text.End(report, warnings)
	}
	if err == nil && report.Count(suite.Failed) > 0 {
		return &exitError{code: exitFailed}
	}
	return err
}

// slowAfter is how often a slow check is named without a terminal.
const slowAfter = 10 * time.Second

// progress shows on standard error which check runs: on a terminal always, elsewhere if it is slow.
type progress struct {
	w        io.Writer
	terminal bool
	stop     chan struct{}
	over     sync.WaitGroup

	mu     sync.Mutex
	checks []suite.Check
	n      int
	ended  bool
}

func newProgress(w io.Writer, checks []suite.Check, quiet bool) *progress {
	p := &progress{w: w, checks: checks, stop: make(chan struct{})}
	if f, is := below(w).(*os.File); is && !quiet && term.IsTerminal(int(f.Fd())) {
		p.w, p.terminal = f, true // its control characters move the cursor
	} else {
		p.over.Go(p.nameSlow)
	}
	p.show()
	return p
}

// nameSlow names the running check if it is still the same as at the last tick.
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
			_, _ = fmt.Fprintf(p.w, "%d of %d: %s has been running for at least %v\n", p.n+1, len(p.checks), p.checks[p.n].ID, since)
		}
		p.mu.Unlock()
	}
}

// shown prints other output above the progress line.
func (p *progress) shown(print func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	print()
	p.show()
}

// made is shown for the output of a finished check.
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

// clear erases the progress line.
func (p *progress) clear() {
	if p.terminal {
		_, _ = io.WriteString(p.w, "\r\x1b[K")
	}
}

// end removes the progress line. It may be called again.
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
