// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/agent"
	"github.com/compute-agent/compute-agent/internal/pluginhost/trial"
)

// newPluginTest runs the conformance suite on a plugin.
func newPluginTest() *cobra.Command {
	var opts cli.Options
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
		RunE: func(cmd *cobra.Command, args []string) error {
			if _, err := trial.Select(nil, run); err != nil { // before the suite's program is needed
				return cli.Exit(cli.ExitUsage, fmt.Errorf("--run: %w", err))
			}
			process, err := trial.StartSuite(cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			defer process.Close()
			checks, err := trial.Select(process.Checks, run)
			if err == nil && len(checks) == 0 {
				return cli.Exit(cli.ExitUsage,
					fmt.Errorf("--run %q matches no check; `compute-agent plugin test --list` lists them", run))
			}
			if err != nil {
				return err
			}
			if list {
				return cli.Print(cmd, &opts, checks, render.PluginChecks)
			}
			o, err := flags.options(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			o.Select = run
			o.Instances, o.Image = instances || image != "", image
			if limit < 0 || checkLimit < 0 {
				return cli.Exit(cli.ExitUsage, errors.New("--timeout and --check-timeout must not be negative"))
			}
			o.Timeout, o.CheckTimeout, o.FailFast = limit, checkLimit, failFast
			flags.warnOfSandbox(cmd, o)
			return runChecks(cmd, process, o, checks, junit, opts.JSON())
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
	opts.AddOutputFlag(cmd)
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
		notes = cli.Screen(notes)
	}
	text := render.NewPluginTest(results, notes, checks, cli.TerminalWidth(out))
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
		err = cli.PrintJSON(out, struct {
			trial.Report
			Warnings []string `json:"warnings,omitempty"`
		}{report, warnings})
	} else {
		err = text.End(report, warnings)
	}
	if err == nil && report.Count(trial.Failed) > 0 {
		return cli.Exit(cli.ExitFailed, nil)
	}
	return err
}
