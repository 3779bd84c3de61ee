// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/agent"
	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/internal/config"
)

func newNode() *cobra.Command {
	return group("node", "List, reassign or remove compute nodes of this agent", newNodeList(), newNodeGive(), newNodeRemove())
}

func newNodeList() *cobra.Command {
	var opts options
	cmd := &cobra.Command{
		Use: "list", Short: "List the compute nodes that this agent reports or has reported", Args: cobra.NoArgs,
		Long: "List the compute nodes that this agent reports or has reported, and the driver that each belongs to. A node that no driver names\n" +
			"any more is orphaned: Placement keeps it until the driver or `compute-agent node remove` confirms that it no longer exists. A\n" +
			"node that is held is named by a driver that it does not belong to; see `compute-agent node give`. If no agent runs, the states\n" +
			"are unknown.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := opts.load()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), askTimeout)
			defer cancel()
			nodes, err := control.NewClient(cfg.Agent.ControlSocket()).Nodes(ctx)
			if errors.Is(err, control.ErrNotRunning) {
				nodes, err = agent.NodesOffline(cfg)
			}
			if err != nil {
				return err
			}
			return printed(cmd, &opts, nodes, render.Nodes)
		},
	}
	opts.addConfigFlags(cmd)
	opts.addOutputFlag(cmd)
	return cmd
}

func newNodeGive() *cobra.Command {
	var opts options
	var ok consent
	var to string
	cmd := &cobra.Command{
		Use: "give NAME|UUID --to DRIVER", Short: "Assign a node to another driver", Args: cobra.ExactArgs(1),
		Long: "Assign a node to another driver. The driver that first reported a node owns it: another driver that also names it is held\n" +
			"(condition node-claimed-twice), even if the first one is down or no longer configured. From the next pass on, the new driver\n" +
			"reports the node. What only the previous driver reported is removed; inventory that is still allocated stays, closed for new\n" +
			"instances, until it is free. If something prevents the change, it is listed, nothing changes, and the exit code is 3. Works with\n" +
			"and without a running agent.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if to == "" {
				return &exitError{exitUsage, errors.New("--to DRIVER is required: the driver to assign the node to")}
			}
			cfg, err := opts.load()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), askTimeout+cfg.Tracker.PassDeadline)
			defer cancel()
			log := newLogger(cfg, cmd.ErrOrStderr()).Level(zerolog.WarnLevel)
			return proposal[control.Gift]{
				look: func() (control.Gift, error) {
					return giveNode(ctx, cfg, log, control.GiveRequest{Node: args[0], To: to, DryRun: true})
				},
				do: func(out control.Gift) (control.Gift, error) {
					return giveNode(ctx, cfg, log, control.GiveRequest{Node: out.UUID, To: to})
				},
				groups: func(out control.Gift) int { return len(out.ViolationGroups) },
				print:  render.Gift,
			}.run(cmd, &opts, &ok)
		},
	}
	opts.addConfigFlags(cmd)
	opts.addOutputFlag(cmd)
	ok.addFlags(cmd)
	cmd.Flags().StringVar(&to, "to", "", "`DRIVER` to assign the node to")
	return cmd
}

// proposal is a change of a node that is shown before it is made. All fields are required.
type proposal[T any] struct {
	look func() (T, error) // a dry run
	// do makes the change. It finds the node by uuid: the name may belong to another node by now.
	do     func(T) (T, error)
	groups func(T) int
	print  func(io.Writer, T) error
}

// run makes the change if there are no violations and the operator agrees, and prints the result.
// With violations the exit code is exitProtect.
func (p proposal[T]) run(cmd *cobra.Command, opts *options, ok *consent) error {
	out, err := p.look()
	if err != nil {
		return err
	}
	show := func() error { return printed(cmd, opts, out, p.print) }
	if p.groups(out) == 0 && !ok.dryRun {
		if !ok.yes && !opts.json() {
			if err := show(); err != nil {
				return err
			}
		}
		do, err := ok.given(cmd)
		if err != nil {
			return err
		}
		if do {
			if out, err = p.do(out); err != nil {
				return err
			}
		}
	}
	if err := show(); err != nil {
		return err
	}
	if p.groups(out) > 0 {
		return &exitError{code: exitProtect}
	}
	return nil
}

// giveNode sends the request to the running agent, or changes the state directory.
func giveNode(ctx context.Context, cfg *config.Config, log zerolog.Logger, r control.GiveRequest) (control.Gift, error) {
	out, err := control.NewClient(cfg.Agent.ControlSocket()).GiveNode(ctx, r)
	if errors.Is(err, control.ErrNotRunning) {
		return agent.GiveNodeOffline(cfg, log, r)
	}
	return out, err
}

func newNodeRemove() *cobra.Command {
	var opts options
	var ok consent
	cmd := &cobra.Command{
		Use: "remove NAME|UUID", Short: "Delete a node that no longer exists from Placement", Args: cobra.ExactArgs(1),
		Long: "Delete a node that no longer exists from Placement, with all resource providers below it. The operator confirms that the node\n" +
			"is gone; the command checks the rest: no driver names the node, this agent created its root provider and owns everything in its\n" +
			"tree, and nothing of it is allocated. If a check fails, it is listed, nothing is written, and the exit code is 3.",
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := opts.load()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), askTimeout+cfg.Tracker.PassDeadline)
			defer cancel()
			log := newLogger(cfg, cmd.ErrOrStderr()).Level(zerolog.WarnLevel)
			return proposal[control.Removal]{
				look: func() (control.Removal, error) {
					return removeNode(ctx, cfg, log, control.RemoveRequest{Node: args[0], DryRun: true})
				},
				do: func(out control.Removal) (control.Removal, error) {
					return removeNode(ctx, cfg, log, control.RemoveRequest{Node: out.UUID})
				},
				groups: func(out control.Removal) int { return len(out.ViolationGroups) },
				print:  render.Removal,
			}.run(cmd, &opts, &ok)
		},
	}
	opts.addConfigFlags(cmd)
	opts.addOutputFlag(cmd)
	ok.addFlags(cmd)
	return cmd
}

// removeNode sends the request to the running agent, or does it without one.
func removeNode(ctx context.Context, cfg *config.Config, log zerolog.Logger, r control.RemoveRequest) (control.Removal, error) {
	out, err := control.NewClient(cfg.Agent.ControlSocket()).RemoveNode(ctx, r)
	if errors.Is(err, control.ErrNotRunning) {
		return agent.RemoveNodeOffline(ctx, cfg, log, r)
	}
	return out, err
}
