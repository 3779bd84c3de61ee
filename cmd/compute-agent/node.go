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
	return group("node", "List the compute nodes of this agent, give one to a driver, or remove one that is gone", newNodeList(), newNodeGive(), newNodeRemove())
}

func newNodeList() *cobra.Command {
	var opts options
	cmd := &cobra.Command{
		Use: "list", Short: "List the compute nodes that this agent reports, or has reported", Args: cobra.NoArgs,
		Long: "List the compute nodes that this agent reports, or has reported, and the driver that each belongs to. A node that no driver names any\n" +
			"more is orphaned: what Placement says of it stays until somebody who knows says that it is gone for good, the driver or\n" +
			"`compute-agent node remove`. A node that is held is named by a driver that it does not belong to, see `compute-agent node give`.\n" +
			"Where no agent runs, the states are unknown.",
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
		Use: "give NAME|UUID --to DRIVER", Short: "Make a node belong to another driver", Args: cobra.ExactArgs(1),
		Long: "Make a node belong to another driver. The driver that first reported a node keeps it: another one that names the node too is held (the\n" +
			"condition node-claimed-twice), also when the first one is down or is no longer configured. From the next pass on the node is what\n" +
			"the new driver reports. What only the former one reported is removed; what is allocated of it stays, closed for new guests, until it\n" +
			"is free. Whatever stands against that is listed, nothing is changed, and the exit code is 3. Works with a running agent and without.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if to == "" {
				return &exitError{exitUsage, errors.New("--to DRIVER says which driver is to have the node")}
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
				objections: func(out control.Gift) int { return len(out.Objections) },
				print:      render.Gift,
			}.run(cmd, &opts, &ok)
		},
	}
	opts.addConfigFlags(cmd)
	opts.addOutputFlag(cmd)
	ok.addFlags(cmd)
	cmd.Flags().StringVar(&to, "to", "", "`DRIVER` that is to have the node")
	return cmd
}

// proposal is a change of a node that is looked at and shown before it is made. All fields are required.
type proposal[T any] struct {
	look func() (T, error) // changes nothing
	// do makes the change of the node that was looked at, by its uuid: a name may have become another node's.
	do         func(T) (T, error)
	objections func(T) int
	print      func(io.Writer, T) error
}

// run makes the change if nothing stands against it and the operator agrees, and prints what is so then. With objections the
// exit code is that of a refusal.
func (p proposal[T]) run(cmd *cobra.Command, opts *options, ok *consent) error {
	out, err := p.look()
	if err != nil {
		return err
	}
	show := func() error { return printed(cmd, opts, out, p.print) }
	if p.objections(out) == 0 && !ok.dryRun {
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
	if p.objections(out) > 0 {
		return &exitError{code: exitProtect}
	}
	return nil
}

// giveNode has the running agent do it, or does it itself.
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
		Use: "remove NAME|UUID", Short: "Delete a node that is gone for good from Placement", Args: cobra.ExactArgs(1),
		Long: "Delete a node that is gone for good from Placement, with all resource providers below it. That it is gone is your word; what else\n" +
			"must be true is looked at: no driver names it, this agent made its root provider, everything in its tree is this agent's, and\n" +
			"nobody holds anything of it. Whatever stands against that is listed, nothing is written, and the exit code is 3.",
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
				objections: func(out control.Removal) int { return len(out.Objections) },
				print:      render.Removal,
			}.run(cmd, &opts, &ok)
		},
	}
	opts.addConfigFlags(cmd)
	opts.addOutputFlag(cmd)
	ok.addFlags(cmd)
	return cmd
}

// removeNode has the running agent do it, or does it itself.
func removeNode(ctx context.Context, cfg *config.Config, log zerolog.Logger, r control.RemoveRequest) (control.Removal, error) {
	out, err := control.NewClient(cfg.Agent.ControlSocket()).RemoveNode(ctx, r)
	if errors.Is(err, control.ErrNotRunning) {
		return agent.RemoveNodeOffline(ctx, cfg, log, r)
	}
	return out, err
}
