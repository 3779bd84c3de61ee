// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/agent"
	"github.com/compute-agent/compute-agent/internal/pluginhost/trial"
)

// newPluginTest runs the conformance suite on a plugin.
func newPluginTest() *cobra.Command {
	var opts options
	var flags trialFlags
	var junit, image, run string
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
		Long: "Start a driver's plugin as the agent does and check that it meets " +
			"the agent's contract. Placement is not involved, and nothing is\n" +
			"installed. For each check that fails, the output shows what was " +
			"sent, what was received, the rule, and where to look. Checks that\n" +
			"are not run say why, and are counted apart: nothing is known of the driver there.\n\n" +
			"The driver runs in the sandbox in which the agent starts it: it writes only to the directories of " +
			"guests, to the absolute paths in\n" +
			"its own configuration, to temporary files and devices (docs/drivers.md, " +
			"The sandbox); a conf.d file can allow more. What the\n" +
			"agent's user and unit may do is not part of it.\n\n" +
			"--config takes a file with the driver's own keys (the content of " +
			"[drivers.NAME.config]), or a conf.d file with that table. With this\n" +
			"configuration the driver must list nodes on this machine.\n\n" +
			"Reshapes start from the tree of the driver's last release, whose " +
			"executable --former names, or from the tree that the driver\n" +
			"makes with --former-config; with both, the last release gets that " +
			"configuration. Without either they start from the driver's own\n" +
			"tree with all inventory on the root, if the driver accepts such " +
			"a layout, and only the classes that it moves are checked.\n\n" +
			"Instances of a driver that manages them are only tested with " +
			"--instances: the suite creates some small ones on this machine, with\n" +
			"random uuids and names that begin with drivertest-, and removes them.\n\n" +
			"Each check is printed when it ends. If standard error is not " +
			"a terminal, a slow check is named there every ten seconds.\n\n" +
			"The exit code is 0 if no check failed; 1 if a check failed, " +
			"--timeout expired or the command was interrupted; 64 if there was\n" +
			"nothing to check; 78 if the file of --config is invalid or is " +
			"for another driver. Names of classes and traits that are not\n" +
			"standard are warnings, not failures.",
		Example: "  compute-agent plugin test ./compute-driver-mine --config mine.toml\n" +
			"  compute-agent plugin test ./compute-driver-mine --config mine.toml --run '^reshape/'\n" +
			"  compute-agent plugin test ./compute-driver-mine --config mine.toml --former " +
			"./last-release/compute-driver-mine\n" +
			"  compute-agent plugin test ./compute-driver-mine --config mine.toml --timeout 5m --fail-fast\n" +
			"  compute-agent plugin test ./compute-driver-mine --config mine.toml --junit report.xml\n" +
			"  compute-agent plugin test --list",
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := trial.Select(nil, run); err != nil { // before the suite's program is needed
				return &exitError{exitUsage, fmt.Errorf("--run: %w", err)}
			}
			process, err := trial.StartSuite(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			defer process.Close()
			checks, err := trial.Select(process.Checks, run)
			if err == nil && len(checks) == 0 {
				return &exitError{exitUsage,
					fmt.Errorf("--run %q matches no check; `compute-agent plugin test --list` lists them", run)}
			}
			if err != nil {
				return err
			}
			if list {
				return printResult(cmd, &opts, checks, render.PluginChecks)
			}
			o, err := flags.options(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			o.Select = run
			o.Instances, o.Image = instances || image != "", image
			if limit < 0 || checkLimit < 0 {
				return &exitError{exitUsage, errors.New("--timeout and --check-timeout must not be negative")}
			}
			o.Timeout, o.CheckTimeout, o.FailFast = limit, checkLimit, failFast
			flags.warnOfSandbox(cmd, o)
			return runChecks(cmd, process, o, checks, junit, opts.json())
		},
	}
	flags.addConfig(cmd)
	cmd.Flags().StringVar(&flags.FormerPath, "former", "",
		"`PATH` of the last release's executable; reshapes start from its tree")
	cmd.Flags().DurationVar(&limit, "timeout", 0, "time `LIMIT` of the whole suite, 0 for none")
	cmd.Flags().DurationVar(&checkLimit, "check-timeout", 5*time.Minute, "time `LIMIT` of each check")
	cmd.Flags().BoolVar(&failFast, "fail-fast", false, "stop at the first check that fails")
	cmd.Flags().StringVar(&flags.FormerConfig, "former-config", "",
		"`FILE` with a configuration whose tree needs a reshape to that of --config")
	cmd.Flags().StringVar(&run, "run", "", "run only checks whose ID matches `REGEX`")
	cmd.Flags().StringVar(&junit, "junit", "", "also write the report as JUnit XML to `FILE`")
	cmd.Flags().BoolVar(&instances, "instances", false, "let the suite create and remove instances on this machine")
	cmd.Flags().StringVar(&image, "instance-image", "", "`IMAGE` for the instances of the suite; implies --instances")
	cmd.Flags().BoolVar(&list, "list", false, "list the checks that would run, instead of running them")
	opts.addOutputFlag(cmd)
	return cmd
}

// runChecks runs the checks and prints each result as it arrives.
func runChecks(
	cmd *cobra.Command, process *trial.Process, o trial.SuiteOptions, checks []trial.Check, junit string, asJSON bool,
) error {
	out, notes := cmd.OutOrStdout(), cmd.ErrOrStderr()
	results := out
	if asJSON {
		results = io.Discard
	} else {
		notes = screen(notes)
	}
	text := render.NewPluginTest(results, notes, checks, terminalWidth(out))
	defer text.Close()
	report, err := process.Run(cmd.Context(), o, text.Begin, text.Result)
	text.Close()
	var file *trial.FileError
	switch {
	case errors.As(err, &file), err != nil && cmd.Context().Err() == nil:
		return trialError(err)
	case err != nil:
		if err := text.Flush(); err != nil {
			return err
		}
		return fmt.Errorf("interrupted after %d of %d checks; %d of them failed",
			len(report.Results), len(checks), report.Count(trial.Failed))
	}
	if junit != "" {
		if err := report.WriteJUnitFile(junit); err != nil {
			return fmt.Errorf("--junit: %w", err)
		}
	}
	if warnings := agent.UnknownStandardNames(report.Classes, report.Traits); asJSON {
		err = printJSON(out, struct {
			trial.Report
			Warnings []string `json:"warnings,omitempty"`
		}{report, warnings})
	} else {
		err = text.End(report, warnings)
	}
	if err == nil && report.Count(trial.Failed) > 0 {
		return &exitError{code: exitFailed}
	}
	return err
}
