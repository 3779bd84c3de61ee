// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/agent/control"
)

func newNode() *cobra.Command {
	return group("node", "List, reassign or remove compute nodes of this agent", newNodeList(),
		newNodeGive(), newNodeRemove())
}

func newNodeList() *cobra.Command {
	var opts cli.Options
	cmd := &cobra.Command{
		Use: "list", Short: "List the compute nodes that this agent reports or has reported", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := opts.Load()
			if err != nil {
				return err
			}
			nodes, err := cli.HostOf(cmd, cfg).Nodes(cmd.Context())
			if err != nil {
				return err
			}
			return cli.Print(cmd, &opts, nodes, render.Nodes)
		},
	}
	opts.AddFlags(cmd)
	return cmd
}

func newNodeGive() *cobra.Command {
	var opts cli.Options
	var ok cli.Consent
	var to string
	cmd := &cobra.Command{
		Use: "give NAME|UUID --to DRIVER", Short: "Assign a node to another driver", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if to == "" {
				return cli.Exit(cli.ExitUsage, errors.New("--to DRIVER is required: the driver to assign the node to"))
			}
			cfg, err := opts.Load()
			if err != nil {
				return err
			}
			return cli.Proposal[control.Assignment]{
				Do: func(node string, dryRun bool) (control.Assignment, error) {
					request := control.GiveRequest{Node: node, To: to, DryRun: dryRun}
					return cli.HostOf(cmd, cfg).GiveNode(cmd.Context(), request)
				},
				Of:    func(out control.Assignment) (string, int) { return out.UUID, len(out.ViolationGroups) },
				Print: render.Assignment,
			}.Run(cmd, &opts, &ok, args[0])
		},
	}
	opts.AddFlags(cmd)
	ok.AddFlags(cmd)
	cmd.Flags().StringVar(&to, "to", "", "`DRIVER` to assign the node to")
	return cmd
}

func newNodeRemove() *cobra.Command {
	var opts cli.Options
	var ok cli.Consent
	cmd := &cobra.Command{
		Use: "remove NAME|UUID", Short: "Delete a node that no longer exists from Placement", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, err := opts.Load()
			if err != nil {
				return err
			}
			return cli.Proposal[control.Removal]{
				Do: func(node string, dryRun bool) (control.Removal, error) {
					return cli.HostOf(cmd, cfg).RemoveNode(cmd.Context(), control.RemoveRequest{Node: node,
						DryRun: dryRun})
				},
				Of:    func(out control.Removal) (string, int) { return out.UUID, len(out.ViolationGroups) },
				Print: render.Removal,
			}.Run(cmd, &opts, &ok, args[0])
		},
	}
	opts.AddFlags(cmd)
	ok.AddFlags(cmd)
	return cmd
}
