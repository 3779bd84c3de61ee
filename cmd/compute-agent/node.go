// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/agent/control"
)

func newNode() *cobra.Command {
	return group("node", "List, reassign or remove compute nodes of this agent", newNodeList(),
		newNodeGive(), newNodeRemove())
}

func newNodeList() *cobra.Command {
	var opts options
	cmd := &cobra.Command{
		Use: "list", Short: "List the compute nodes that this agent reports or has reported", Args: cobra.NoArgs,
		Long: "List the compute nodes that this agent reports or has reported, " +
			"and the driver that each belongs to. A node that no driver names\n" +
			"any more is orphaned: Placement keeps it until the driver or " +
			"`compute-agent node remove` confirms that it no longer exists. A\n" +
			"node that is held is named by a driver that it does not belong " +
			"to; see `compute-agent node give`. If no agent runs, the states\n" +
			"are unknown.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := opts.load()
			if err != nil {
				return err
			}
			nodes, err := hostOf(cmd, cfg).Nodes(cmd.Context())
			if err != nil {
				return err
			}
			return printResult(cmd, &opts, nodes, render.Nodes)
		},
	}
	opts.addFlags(cmd)
	return cmd
}

func newNodeGive() *cobra.Command {
	var opts options
	var ok consent
	var to string
	cmd := &cobra.Command{
		Use: "give NAME|UUID --to DRIVER", Short: "Assign a node to another driver", Args: cobra.ExactArgs(1),
		Long: "Assign a node to another driver. The driver that first reported " +
			"a node owns it: another driver that also names it is held\n" +
			"(condition node-claimed-twice), even if the first one is down " +
			"or no longer configured. From the next pass on, the new driver\n" +
			"reports the node. What only the previous driver reported is " +
			"removed; inventory that is still allocated stays, closed for new\n" +
			"instances, until it is free. If something prevents the change, it " +
			"is listed, nothing changes, and the exit code is 3. Works with\n" +
			"and without a running agent.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if to == "" {
				return &exitError{exitUsage, errors.New("--to DRIVER is required: the driver to assign the node to")}
			}
			cfg, err := opts.load()
			if err != nil {
				return err
			}
			return proposal[control.Gift]{
				do: func(node string, dryRun bool) (control.Gift, error) {
					request := control.GiveRequest{Node: node, To: to, DryRun: dryRun}
					return hostOf(cmd, cfg).GiveNode(cmd.Context(), request)
				},
				of:    func(out control.Gift) (string, int) { return out.UUID, len(out.ViolationGroups) },
				print: render.Gift,
			}.run(cmd, &opts, &ok, args[0])
		},
	}
	opts.addFlags(cmd)
	ok.addFlags(cmd)
	cmd.Flags().StringVar(&to, "to", "", "`DRIVER` to assign the node to")
	return cmd
}

// proposal is a change of a node that is shown before it is made. All fields are required.
type proposal[T any] struct {
	do func(node string, dryRun bool) (T, error)
	// of returns the uuid of the node, and the number of violations.
	of    func(T) (uuid string, violations int)
	print func(io.Writer, T) error
}

// run makes the change if there are no violations and the operator agrees, and prints the result.
// With violations the exit code is exitProtect. The change is made of the node's uuid: the name may
// belong to another node by now.
func (p proposal[T]) run(cmd *cobra.Command, opts *options, ok *consent, node string) error {
	out, err := p.do(node, true)
	if err != nil {
		return err
	}
	show := func() error { return printResult(cmd, opts, out, p.print) }
	uuid, violations := p.of(out)
	if violations == 0 && !ok.dryRun {
		if !ok.yes && !opts.json() {
			if err := show(); err != nil {
				return err
			}
		}
		given, err := ok.confirm(cmd)
		if err != nil {
			return err
		}
		if given {
			if out, err = p.do(uuid, false); err != nil {
				return err
			}
			_, violations = p.of(out)
		}
	}
	if err := show(); err != nil {
		return err
	}
	if violations > 0 {
		return &exitError{code: exitProtect}
	}
	return nil
}

func newNodeRemove() *cobra.Command {
	var opts options
	var ok consent
	cmd := &cobra.Command{
		Use: "remove NAME|UUID", Short: "Delete a node that no longer exists from Placement", Args: cobra.ExactArgs(1),
		Long: "Delete a node that no longer exists from Placement, with all " +
			"resource providers below it. The operator confirms that the node\n" +
			"is gone; the command checks the rest: no driver names the node, " +
			"this agent created its root provider and owns everything in its\n" +
			"tree, and nothing of it is allocated. If a check fails, " +
			"it is listed, nothing is written, and the exit code is 3.",
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := opts.load()
			if err != nil {
				return err
			}
			return proposal[control.Removal]{
				do: func(node string, dryRun bool) (control.Removal, error) {
					return hostOf(cmd, cfg).RemoveNode(cmd.Context(), control.RemoveRequest{Node: node, DryRun: dryRun})
				},
				of:    func(out control.Removal) (string, int) { return out.UUID, len(out.ViolationGroups) },
				print: render.Removal,
			}.run(cmd, &opts, &ok, args[0])
		},
	}
	opts.addFlags(cmd)
	ok.addFlags(cmd)
	return cmd
}
