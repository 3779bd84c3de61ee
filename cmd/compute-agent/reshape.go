// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/agent/commands"
	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/resourcetracker/journal"
	"github.com/compute-agent/compute-agent/resourcetracker/reshape"
)

// printError prints why a command failed. A refused reshape gets a line for each violation.
func printError(w io.Writer, err error) {
	var fatal *resourcetracker.FatalError
	var refused *reshape.Error
	if !errors.As(err, &fatal) || !errors.As(err, &refused) {
		_, _ = fmt.Fprintf(w, "compute-agent: %v\n", err)
		return
	}
	_, _ = fmt.Fprintf(w, "compute-agent: node %s: the agent stops; nothing was moved, guests are not affected.\n",
		fatal.Node)
	_ = render.Refusal(w, refused.Summary(), refused.ViolationGroups(), refused.Hint)
}

// newRefresh requests passes from the running agent.
func newRefresh() *cobra.Command {
	var opts cli.Options
	cmd := &cobra.Command{
		Use: "refresh", Short: "Request a pass over every node from the running agent", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := opts.Load()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), cli.AskTimeout)
			defer cancel()
			if err := control.NewClient(cfg.Agent.ControlSocket()).Refresh(ctx); err != nil {
				return err
			}
			if opts.JSON() {
				return cli.PrintJSON(cmd.OutOrStdout(), map[string]any{"asked": true})
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(),
				"Requested a pass over every node; `compute-agent status` shows the result.")
			return err
		},
	}
	opts.AddFlags(cmd)
	return cmd
}

// planReshape asks the running agent. If none runs, or the agent has read another configuration, it
// starts the drivers itself: the next start of the agent reads the files as they are now.
func planReshape(cmd *cobra.Command, opts *cli.Options) error {
	cfg, _, err := opts.LoadForCheck(cmd.Context())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), cli.AskTimeout+cfg.Tracker.PassDeadline)
	defer cancel()
	client := control.NewClient(cfg.Agent.ControlSocket())
	status, err := client.Status(ctx)
	other := ""
	if err == nil {
		other = commands.OtherFiles(cfg.Files(), status)
	}
	var raw json.RawMessage
	runs := !errors.Is(err, control.ErrNotRunning)
	switch {
	case !runs, other != "" && !status.Placement.Bundled:
		if runs {
			_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "%s. The drivers are started with the new configuration and stopped "+
				"afterwards; the agent is not affected.\n", other)
		}
		const what = "Starting the drivers to make the plan"
		raw, err = cli.WithProgressOf(cmd, what, func(*render.Progress) (json.RawMessage, error) {
			return cli.HostOf(cmd, cfg).Plan(ctx, runs)
		})
	case err == nil:
		if other != "" {
			_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "%s. The plan is for the configuration that it has read.\n", other)
		}
		raw, err = client.Raw(ctx, control.PlanPath(true))
	}
	if err != nil {
		return err
	}
	view, err := cli.PrintAnswer(cmd, opts, raw, render.Plan)
	return planExitCode(view, err)
}

// planExitCode returns the exit code of a plan that was printed.
func planExitCode(view control.PlanView, err error) error {
	switch {
	case err != nil:
		return err
	case view.Refused():
		return cli.Exit(cli.ExitProtect, nil)
	case view.Failed():
		return cli.Exit(cli.ExitFailed, nil)
	}
	return nil
}

func newReshape() *cobra.Command {
	return group("reshape", "List, show or undo this host's reshapes", newReshapeHistory(),
		newReshapeShow(), newReshapeUndo())
}

// newReshapeHistory lists the journal, with or without a running agent.
func newReshapeHistory() *cobra.Command {
	var opts cli.Options
	cmd := &cobra.Command{
		Use: "history", Short: "List this host's reshapes and their outcomes", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := opts.Load()
			if err != nil {
				return err
			}
			entries, err := journal.Read(cfg.Agent.StateDir)
			if err != nil {
				return err
			}
			if opts.JSON() {
				return cli.PrintJSON(cmd.OutOrStdout(), map[string]any{"reshapes": append([]journal.Entry{},
					entries...)})
			}
			return render.ReshapeHistory(cli.Screen(cmd.OutOrStdout()), entries)
		},
	}
	opts.AddFlags(cmd)
	return cmd
}

func newReshapeShow() *cobra.Command {
	var opts cli.Options
	cmd := &cobra.Command{
		Use: "show ID", Short: "Show a reshape: state before, request and outcome", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := reshapeID(args[0])
			if err != nil {
				return err
			}
			cfg, err := opts.Load()
			if err != nil {
				return err
			}
			entry, err := journal.Find(cfg.Agent.StateDir, id)
			if err != nil {
				return err
			}
			return cli.Print(cmd, &opts, entry, render.Reshape)
		},
	}
	opts.AddFlags(cmd)
	return cmd
}

// newReshapeUndo sends the request to the running agent, or does it without one.
func newReshapeUndo() *cobra.Command {
	var opts cli.Options
	cmd := &cobra.Command{
		Use: "undo ID", Short: "Undo a reshape, unless other clients have written to what it moved",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := reshapeID(args[0])
			if err != nil {
				return err
			}
			cfg, err := opts.Load()
			if err != nil {
				return err
			}
			if err := cli.HostOf(cmd, cfg).UndoReshape(cmd.Context(), id); err != nil {
				return err
			}
			if opts.JSON() {
				return cli.PrintJSON(cmd.OutOrStdout(), map[string]any{"undone": id})
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(),
				"Undid reshape %d: the inventories and allocations that it moved are back in place.\n"+
					"Traits and aggregates stay until a pass of the driver's "+
					"previous version or configuration restores them.\n"+
					"If the driver still needs the reshape, the agent's next start makes it again: restore "+
					"the driver's previous version or configuration first.\n", id)
			return err
		},
	}
	opts.AddFlags(cmd)
	return cmd
}

func reshapeID(arg string) (int64, error) {
	id, err := strconv.ParseInt(arg, 10, 64)
	if err != nil || id < 1 {
		return 0, cli.Exit(cli.ExitUsage,
			fmt.Errorf("%q is not the number of a reshape; `compute-agent reshape history` lists them", arg))
	}
	return id, nil
}
