// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/doctor"
	"github.com/compute-agent/compute-agent/internal/health"
	"github.com/compute-agent/compute-agent/resourcetracker"
)

// askTimeout limits a request to the running agent. A dry run may have to wait for a pass.
const askTimeout = time.Minute

// newTree prints the provider trees as Placement has them.
func newTree() *cobra.Command {
	var opts options
	var tree render.TreeOptions
	var with control.TreeOptions
	cmd := &cobra.Command{
		Use: "tree", Short: "Show this host's provider tree as Placement has it", Args: cobra.NoArgs,
		Long: "Show this host's provider tree as Placement has it. The running " +
			"agent reads it from Placement. If Placement cannot be read,\n" +
			"the command shows the tree that the agent read last, its age and " +
			"the cause, and the exit code is 1. The exit code is also 1 if\n" +
			"there is no tree to show.\n\n" +
			"With --servers, each resource provider is shown with the guests " +
			"that have allocations of it, and with all other consumers:\n" +
			"migrations, and what other clients allocated. The drivers are " +
			"asked for their guests, and the names are those of the cell.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			path := control.TreePath(with)
			view, err := requestAndPrint(cmd, &opts, path, func(w io.Writer, view control.Tree) error {
				tree.Now = time.Now()
				return render.Tree(w, view, tree)
			})
			if err == nil && view.Unread() {
				return &exitError{code: exitFailed}
			}
			return err
		},
	}
	opts.addConfigFlags(cmd)
	opts.addWatchFlag(cmd)
	opts.addOutputFlag(cmd)
	cmd.Flags().BoolVar(&with.Servers, "servers", false,
		"show the guests and other consumers with allocations of each resource provider")
	cmd.Flags().BoolVar(&tree.AllTraits, "traits", false, "list every trait instead of folding families of traits")
	return cmd
}

// newStatus prints the agent's status. It fails if the agent is degraded, for use in scripts.
func newStatus() *cobra.Command { return newStatusWith(services) }

// newStatusWith is newStatus with the services of a machine.
func newStatusWith(services func(ctx context.Context, file string) []doctor.Service) *cobra.Command {
	var opts options
	cmd := &cobra.Command{
		Use: "status", Short: "Show the state of the agent, its drivers and its nodes", Args: cobra.NoArgs,
		Long: "Show the state of the agent, its drivers and its nodes. The " +
			"exit code is 0 if everything is reported, and 1 otherwise.\n\n" +
			"On a machine of the control plane, the command also shows " +
			"the services that are enabled there; without an agent, or\n" +
			"if it does not answer, these alone. The exit code is 1 if one does not run.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			raw, err := requestAgent(cmd, &opts, "status")
			here := services(cmd.Context(), opts.file)
			results := doctor.ControlPlane(here)
			if err != nil {
				if errors.Is(err, control.ErrNotRunning) && len(results) > 0 && !doctor.HasAgent(here) {
					err = nil
				}
				return servicesAlone(cmd, &opts, results, err)
			}
			if raw, err = doctor.AddControlPlane(raw, results); err != nil {
				return err
			}
			view, err := printAnswer(cmd, &opts, raw, func(w io.Writer, view health.Status) error {
				return errors.Join(render.Status(w, view, time.Now()), render.ControlPlane(w, results))
			})
			if err == nil && (view.State != resourcetracker.Reporting || doctor.ExitStatus(results) != exitDone) {
				return &exitError{code: exitFailed}
			}
			return err
		},
	}
	opts.addConfigFlags(cmd)
	opts.addWatchFlag(cmd)
	opts.addOutputFlag(cmd)
	return cmd
}

// servicesAlone prints the results for the services of the control plane, if there are any, where
// there is no answer of an agent. The error of the agent is that of the command.
func servicesAlone(cmd *cobra.Command, o *options, results []doctor.Result, agentErr error) error {
	if len(results) == 0 {
		return agentErr
	}
	raw, err := doctor.AddControlPlane(json.RawMessage("{}"), results)
	if err != nil {
		return errors.Join(agentErr, err)
	}
	if o.answered != nil {
		o.answered(raw)
	}
	err = printResult(cmd, o, raw, func(w io.Writer, _ json.RawMessage) error { return render.Doctor(w, results) })
	if agentErr == nil && err == nil && doctor.ExitStatus(results) != exitDone {
		return &exitError{code: exitFailed}
	}
	return errors.Join(agentErr, err)
}

// newPlan prints what the next pass would write.
func newPlan() *cobra.Command {
	var opts options
	var reshape bool
	cmd := &cobra.Command{
		Use: "plan", Short: "Show what the next pass would write to Placement, without writing", Args: cobra.NoArgs,
		Long: "Show what the next pass would write to Placement, without writing.\n" +
			"With --reshape, also show what the next start would move if a " +
			"driver needs a reshape, before and after. If no agent runs, or\n" +
			"the running agent has read other configuration files (another " +
			"--config, or a file that has changed since), the drivers are\n" +
			"started for the command and stopped afterwards. The exit code " +
			"is 3 if the reshape would be refused, and 1 if the plan could\n" +
			"not be made.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if reshape && cmd.Flags().Changed(watchFlag) {
				return &exitError{exitUsage,
					errors.New(
						"--reshape excludes --watch: while no agent runs, each repetition would start the drivers")}
			}
			if reshape {
				return planReshape(cmd, &opts)
			}
			view, err := requestAndPrint(cmd, &opts, control.PlanPath(false), render.Plan)
			return planExitCode(view, err)
		},
	}
	opts.addConfigFlags(cmd)
	opts.addWatchFlag(cmd)
	opts.addOutputFlag(cmd)
	cmd.Flags().BoolVar(&reshape, "reshape", false, "include the reshape that the next start would make")
	return cmd
}

// requestAndPrint sends a request to the running agent and prints the answer.
func requestAndPrint[T any](
	cmd *cobra.Command, o *options, what string, text func(io.Writer, T) error,
) (view T, err error) {
	raw, err := requestAgent(cmd, o, what)
	if err != nil {
		return view, err
	}
	return printAnswer(cmd, o, raw, text)
}

// requestAgent sends a request to the running agent.
func requestAgent(cmd *cobra.Command, o *options, what string) (json.RawMessage, error) {
	cfg, err := o.loadToAsk(cmd)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), askTimeout)
	defer cancel()
	return control.NewClient(cfg.Agent.ControlSocket()).Raw(ctx, what)
}

// printAnswer prints an answer of the agent. JSON is printed even if it cannot be decoded.
func printAnswer[T any](
	cmd *cobra.Command, o *options, raw json.RawMessage, text func(io.Writer, T) error,
) (view T, err error) {
	view, err = control.Decode[T](raw)
	if err != nil && !o.json() {
		return view, err
	}
	if o.answered != nil {
		o.answered(raw)
	}
	if o.json() {
		return view, printJSON(cmd.OutOrStdout(), raw)
	}
	return view, text(screen(cmd.OutOrStdout()), view)
}

// loadToAsk reads the configuration for the path of the control socket. If a file is invalid, it
// falls back to --runtime-dir or the default, because status matters most then.
func (o *options) loadToAsk(cmd *cobra.Command) (*config.Config, error) {
	cfg, err := o.load()
	if !errors.Is(err, config.ErrInvalid) {
		return cfg, err
	}
	fallback, fallbackErr := o.loadFrom(config.Options{Root: "/nonexistent"}) // without any files
	if fallbackErr != nil {
		return nil, err
	}
	if _, statErr := os.Stat(fallback.Agent.ControlSocket()); statErr != nil {
		return nil, err
	}
	_, _ = fmt.Fprintf(
		cmd.ErrOrStderr(),
		"compute-agent: the configuration is invalid (run `compute-agent config check`); the running agent does not "+
			"use it. Asking the agent at %s\n",
		fallback.Agent.ControlSocket(),
	)
	return fallback, nil
}
