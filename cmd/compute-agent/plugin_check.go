// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/compute-agent/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/plugins/drivertest"
)

// newPluginTest puts the conformance suite to a plugin.
func newPluginTest() *cobra.Command {
	var opts options
	var ex examined
	var junit, image string
	var list, instances bool
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
			"A reshape is tried from the tree that the driver makes with --former-config; without that, from its own tree with all inventory on\n" +
			"the root, if the driver knows such a shape.\n\n" +
			"Of a driver that manages instances, those are tried with --instances only: the suite then makes some small ones on this machine,\n" +
			"with made-up uuids and names that begin with drivertest-, and removes them.\n\n" +
			"The exit code is 0 if no check failed, 1 if one did or the command was interrupted, 64 if there was nothing to\n" +
			"check, 78 if the file of --config is invalid or another driver's.",
		Example: "  compute-agent plugin test ./compute-driver-mine --config mine.toml\n" +
			"  compute-agent plugin test ./compute-driver-mine --config mine.toml --run '^reshape/'\n" +
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
			var progress *progress
			if f, ok := cmd.ErrOrStderr().(*os.File); ok && !opts.json() && term.IsTerminal(int(f.Fd())) {
				progress = newProgress(f, checks)
				o.Each = progress.made
			}
			report, err := drivertest.Execute(cmd.Context(), o)
			progress.clear()
			if err != nil {
				return interrupted(cmd, report, len(checks), err)
			}
			return reported(cmd, report, junit, opts.json())
		},
	}
	ex.addConfig(cmd)
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

// reported prints a report that is complete.
func reported(cmd *cobra.Command, report drivertest.Report, junit string, asJSON bool) error {
	if junit != "" {
		if err := writeFile(junit, report.WriteJUnit); err != nil {
			return fmt.Errorf("--junit: %w", err)
		}
	}
	out := cmd.OutOrStdout()
	var err error
	if asJSON {
		err = printJSON(out, report)
	} else {
		err = render.PluginTest(out, report, terminalWidth(out))
	}
	if err == nil && report.Count(drivertest.Failed) > 0 {
		return &exitError{code: exitFailed}
	}
	return err
}

// interrupted says how far the suite came, and what failed until then.
func interrupted(cmd *cobra.Command, report drivertest.Report, all int, err error) error {
	if cmd.Context().Err() == nil {
		return err
	}
	out := cmd.OutOrStdout()
	if err := render.PluginFailures(out, report, terminalWidth(out)); err != nil {
		return err
	}
	return fmt.Errorf("interrupted after %d of %d checks; %d failed until then", len(report.Results), all, report.Count(drivertest.Failed))
}

// terminalWidth is how many characters fit in a line of w, 0 if it is no terminal: then lines are not broken.
func terminalWidth(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// progress shows on a terminal which check is run: a driver that hangs has one take minutes.
type progress struct {
	w      io.Writer
	checks []drivertest.Check
	n      int
}

func newProgress(w io.Writer, checks []drivertest.Check) *progress {
	p := &progress{w: w, checks: checks}
	p.show()
	return p
}

func (p *progress) made(drivertest.Result) {
	p.n++
	p.show()
}

func (p *progress) show() {
	if p.n < len(p.checks) {
		_, _ = fmt.Fprintf(p.w, "\r\x1b[K%d of %d: %s", p.n+1, len(p.checks), p.checks[p.n].ID)
	}
}

// clear takes the line away. Of no progress there is none.
func (p *progress) clear() {
	if p != nil {
		_, _ = io.WriteString(p.w, "\r\x1b[K")
	}
}

func writeFile(name string, write func(io.Writer) error) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}
