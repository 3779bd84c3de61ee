// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/internal/doctor"
	"github.com/compute-agent/compute-agent/internal/health"
	"github.com/compute-agent/compute-agent/resourcetracker"
)

// newTree prints the provider trees as Placement has them.
func newTree() *cobra.Command {
	var opts cli.Options
	var tree render.TreeOptions
	var with control.TreeOptions
	cmd := &cobra.Command{
		Use: "tree", Short: "Show this host's provider tree as Placement has it", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path := control.TreePath(with)
			view, err := cli.RequestAndPrint(cmd, &opts, path, func(w io.Writer, view control.Tree) error {
				tree.Now = time.Now()
				return render.Tree(w, view, tree)
			})
			if err == nil && view.Unread() {
				return cli.Exit(cli.ExitFailed, nil)
			}
			return err
		},
	}
	opts.AddConfigFlags(cmd)
	opts.AddWatchFlag(cmd)
	opts.AddOutputFlag(cmd)
	cmd.Flags().BoolVar(&with.Servers, "servers", false,
		"show the guests and other consumers with allocations of each resource provider")
	cmd.Flags().BoolVar(&tree.AllTraits, "traits", false, "list every trait instead of folding families of traits")
	return cmd
}

// newStatus prints the agent's status. It fails if the agent is degraded, for use in scripts.
func newStatus() *cobra.Command { return newStatusWith(services) }

// newStatusWith is newStatus with the services of a machine.
func newStatusWith(services func(ctx context.Context, file string) []doctor.Service) *cobra.Command {
	var opts cli.Options
	cmd := &cobra.Command{
		Use: "status", Short: "Show the state of the agent, its drivers and its nodes", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			raw, err := cli.RequestAgent(cmd, &opts, "status")
			here := services(cmd.Context(), opts.File)
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
			view, err := cli.PrintAnswer(cmd, &opts, raw, func(w io.Writer, view health.Status) error {
				return errors.Join(render.Status(w, view, time.Now()), render.ControlPlane(w, results))
			})
			if err == nil && (view.State != resourcetracker.Reporting || doctor.ExitStatus(results) != cli.ExitDone) {
				return cli.Exit(cli.ExitFailed, nil)
			}
			return err
		},
	}
	opts.AddConfigFlags(cmd)
	opts.AddWatchFlag(cmd)
	opts.AddOutputFlag(cmd)
	return cmd
}

// servicesAlone prints the results for the services of the control plane, if there are any, where
// there is no answer of an agent. The error of the agent is that of the command.
func servicesAlone(cmd *cobra.Command, o *cli.Options, results []doctor.Result, agentErr error) error {
	if len(results) == 0 {
		return agentErr
	}
	raw, err := doctor.AddControlPlane(json.RawMessage("{}"), results)
	if err != nil {
		return errors.Join(agentErr, err)
	}
	if o.Answered != nil {
		o.Answered(raw)
	}
	err = cli.Print(cmd, o, raw, func(w io.Writer, _ json.RawMessage) error { return render.Doctor(w, results) })
	if agentErr == nil && err == nil && doctor.ExitStatus(results) != cli.ExitDone {
		return cli.Exit(cli.ExitFailed, nil)
	}
	return errors.Join(agentErr, err)
}

// newPlan prints what the next pass would write.
func newPlan() *cobra.Command {
	var opts cli.Options
	var reshape bool
	cmd := &cobra.Command{
		Use: "plan", Short: "Show what the next pass would write to Placement, without writing", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if reshape && cmd.Flags().Changed(cli.WatchFlag) {
				return cli.Exit(cli.ExitUsage, errors.New(
					"--reshape excludes --watch: while no agent runs, each repetition would start the drivers"))
			}
			if reshape {
				return planReshape(cmd, &opts)
			}
			view, err := cli.RequestAndPrint(cmd, &opts, control.PlanPath(false), render.Plan)
			return planExitCode(view, err)
		},
	}
	opts.AddConfigFlags(cmd)
	opts.AddWatchFlag(cmd)
	opts.AddOutputFlag(cmd)
	cmd.Flags().BoolVar(&reshape, "reshape", false, "include the reshape that the next start would make")
	return cmd
}
