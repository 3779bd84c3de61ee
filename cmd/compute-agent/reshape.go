// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/agent"
	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/health"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/resourcetracker/journal"
)

// complain says why a command failed. A refused reshape gets a line for each consumer that stands against it.
func complain(w io.Writer, err error) {
	var fatal *resourcetracker.FatalError
	var refused *resourcetracker.ReshapeError
	if !errors.As(err, &fatal) || !errors.As(err, &refused) {
		_, _ = fmt.Fprintf(w, "compute-agent: %v\n", err)
		return
	}
	_, _ = fmt.Fprintf(w, "compute-agent: node %s: the agent ends; nothing has moved, guests are not affected.\n", fatal.Node)
	_ = render.Refusal(w, refused.Summary(), refused.Objections(), refused.Remedy)
}

// newRefresh asks the running agent for a pass.
func newRefresh() *cobra.Command {
	var opts options
	cmd := &cobra.Command{
		Use: "refresh", Short: "Have the running agent make a pass over every node now", Args: cobra.NoArgs,
		Long: "Have the running agent make a pass over every node now, whatever went wrong before. The pass compares the tree with what Placement\n" +
			"has first, so that what others wrote is seen at once. A node that is held because its reshape\n" +
			"was refused is tried again. The command does not wait for the pass: `compute-agent status` shows what came of it.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := opts.load()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), askTimeout)
			defer cancel()
			if err := control.NewClient(cfg.Agent.ControlSocket()).Refresh(ctx); err != nil {
				return err
			}
			if opts.json() {
				return printJSON(cmd.OutOrStdout(), map[string]any{"asked": true})
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), "The agent makes a pass over every node now; `compute-agent status` shows what comes of it.")
			return err
		},
	}
	opts.addConfigFlags(cmd)
	opts.addOutputFlag(cmd)
	return cmd
}

// planReshape asks the running agent. Where none runs, or where the agent has read another configuration than the one that is asked about, the
// drivers are started for the answer: the next start has the files as they are now.
func planReshape(cmd *cobra.Command, opts *options) error {
	cfg, _, err := opts.loadJudged(cmd.Context())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), askTimeout+cfg.Tracker.PassDeadline)
	defer cancel()
	client := control.NewClient(cfg.Agent.ControlSocket())
	status, err := client.Status(ctx)
	other := ""
	if err == nil {
		other = otherFiles(cfg.Files(), status)
	}
	var raw json.RawMessage
	switch {
	case errors.Is(err, control.ErrNotRunning):
		raw, err = plannedWithout(ctx, cmd, cfg)
	case other != "" && !status.Placement.Bundled:
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "%s: the drivers are started with it to answer, and ended again; the agent goes on as it is.\n", other)
		raw, err = plannedBeside(ctx, cmd, cfg)
	case err == nil:
		if other != "" {
			_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "%s: the answer is about what it has read.\n", other)
		}
		raw, err = client.Raw(ctx, control.PlanPath(true))
	}
	if err != nil {
		return err
	}
	var view control.PlanView
	if err := json.Unmarshal(raw, &view); err != nil {
		return fmt.Errorf("the agent's answer cannot be read; is it of another version than this command? %w", err)
	}
	if opts.json() {
		err = printJSON(cmd.OutOrStdout(), raw)
	} else {
		err = render.Plan(cmd.OutOrStdout(), view)
	}
	return planned(view, err)
}

// plannedWithout answers without the agent.
func plannedWithout(ctx context.Context, cmd *cobra.Command, cfg *config.Config) (json.RawMessage, error) {
	plan, err := agent.DryRun(ctx, cfg, newLogger(cfg, cmd.ErrOrStderr()).Level(zerolog.WarnLevel), resourcetracker.PlanOptions{Reshape: true})
	if err != nil {
		return nil, err
	}
	return json.Marshal(plan)
}

// plannedBeside does so while one runs, whose sockets are left alone.
func plannedBeside(ctx context.Context, cmd *cobra.Command, cfg *config.Config) (raw json.RawMessage, err error) {
	dir, err := agent.ScratchDir()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	cfg.Agent.RuntimeDir = dir
	return plannedWithout(ctx, cmd, cfg)
}

// otherFiles says in what way these configuration files are not what a running agent has read, "" if they are.
func otherFiles(files []string, running health.Status) string {
	if !slices.Equal(files, running.ConfigFiles) {
		was := strings.Join(running.ConfigFiles, ", ")
		if was == "" {
			was = "no file"
		}
		return fmt.Sprintf("The agent that runs has read %s, not %s", was, strings.Join(files, ", "))
	}
	read := running.Started
	if running.Reloaded.After(read) {
		read = running.Reloaded
	}
	for _, file := range files {
		if st, err := os.Stat(file); err == nil && st.ModTime().After(read) {
			return fmt.Sprintf("%s was changed after the agent that runs had read it", file)
		}
	}
	return ""
}

// planned is the error, and so the exit code, of a plan that was printed.
func planned(view control.PlanView, err error) error {
	switch {
	case err != nil:
		return err
	case view.Refused():
		return &exitError{code: exitProtect}
	case view.Failed():
		return &exitError{code: exitFailed}
	}
	return nil
}

func newReshape() *cobra.Command {
	return group("reshape", "Look at this host's reshapes, or take one back", newReshapeHistory(), newReshapeShow(), newReshapeUndo())
}

// newReshapeHistory lists the journal, with or without an agent that runs.
func newReshapeHistory() *cobra.Command {
	var opts options
	cmd := &cobra.Command{
		Use: "history", Short: "List this host's reshapes and what became of them", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := opts.load()
			if err != nil {
				return err
			}
			entries, err := journal.Read(cfg.Agent.StateDir)
			if err != nil {
				return err
			}
			if opts.json() {
				return printJSON(cmd.OutOrStdout(), map[string]any{"reshapes": append([]journal.Entry{}, entries...)})
			}
			return render.ReshapeHistory(cmd.OutOrStdout(), entries)
		},
	}
	opts.addConfigFlags(cmd)
	opts.addOutputFlag(cmd)
	return cmd
}

func newReshapeShow() *cobra.Command {
	var opts options
	cmd := &cobra.Command{
		Use: "show ID", Short: "Show one reshape: what was there, what was asked for, what became of it", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := reshapeID(args[0])
			if err != nil {
				return err
			}
			cfg, err := opts.load()
			if err != nil {
				return err
			}
			entry, err := journal.Find(cfg.Agent.StateDir, id)
			if err != nil {
				return err
			}
			return printed(cmd, &opts, entry, render.Reshape)
		},
	}
	opts.addConfigFlags(cmd)
	opts.addOutputFlag(cmd)
	return cmd
}

// newReshapeUndo has the running agent do it, or does it itself.
func newReshapeUndo() *cobra.Command {
	var opts options
	cmd := &cobra.Command{
		Use: "undo ID", Short: "Take back a reshape, if nobody has written to what it moved since", Args: cobra.ExactArgs(1),
		Long: "Take back a reshape: put every inventory and allocation that it moved where it was. That happens only if the generations of\n" +
			"all its resource providers and consumers are those that held right after it; otherwise nothing is written and the exit code\n" +
			"is 3. Providers that the reshape created stay, empty, and traits and aggregates stay as the driver set them with it: a pass of\n" +
			"its former version or configuration puts both right. The driver still wants the new shape and has it at the next start of\n" +
			"the agent: go back to its former version first, or right after.",
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := reshapeID(args[0])
			if err != nil {
				return err
			}
			cfg, err := opts.load()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), askTimeout+cfg.Tracker.PassDeadline)
			defer cancel()
			err = control.NewClient(cfg.Agent.ControlSocket()).UndoReshape(ctx, id)
			if errors.Is(err, control.ErrNotRunning) {
				err = agent.UndoReshape(ctx, cfg, newLogger(cfg, cmd.ErrOrStderr()).Level(zerolog.WarnLevel), id)
			}
			if err != nil {
				return err
			}
			if opts.json() {
				return printJSON(cmd.OutOrStdout(), map[string]any{"undone": id})
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "Reshape %d is undone: the inventories and allocations that it moved are where they were.\n"+
				"Traits and aggregates stay as they are until a pass of the driver's former version or configuration sets them.\n"+
				"A driver that still wants it has its way at the agent's next start: go back to its former version before.\n", id)
			return err
		},
	}
	opts.addConfigFlags(cmd)
	opts.addOutputFlag(cmd)
	return cmd
}

func reshapeID(arg string) (int64, error) {
	id, err := strconv.ParseInt(arg, 10, 64)
	if err != nil || id < 1 {
		return 0, &exitError{exitUsage, fmt.Errorf("%q is no reshape: write its number, as `compute-agent reshape history` shows it", arg)}
	}
	return id, nil
}
