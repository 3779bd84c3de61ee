// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cells/operator"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/pki"
)

func newDiscoverHosts() *cobra.Command {
	var opts manageOptions
	var named []string
	cmd := &cobra.Command{
		Use: "discover-hosts [CELL]", Aliases: []string{"discover_hosts"},
		Short: "Map hosts that registered with their cells", Args: cobra.MaximumNArgs(1),
		Long: "Map hosts that registered with their cells, so that servers " +
			"can be scheduled to them. The compute API does this every\n" +
			"[compute_api] discover_hosts_interval; this command does " +
			"it now. Mapped are hosts that are enrolled, that match\n" +
			"[compute_api] discover_hosts_pattern, or whose cell has auth = " +
			"\"noauth\". With --host a host is mapped because you name it: it\n" +
			"counts as enrolled then, with the nodes that it reports now, and " +
			"gets servers with user data. The exit code is 1 if a cell did\n" +
			"not answer, or if a host was not mapped.",
		RunE: func(cmd *cobra.Command, args []string) error {
			var cell *string
			if len(args) == 1 {
				cell = &args[0]
			}
			return opts.run(cmd, func(ctx context.Context, d *operator.Deployment) error {
				found, err := d.DiscoverHosts(ctx, cell, named)
				if found != nil {
					err = errors.Join(printResult(cmd, &opts.options, found, render.HostDiscovery), err)
				}
				return err
			})
		},
	}
	opts.addFlags(cmd)
	cmd.Flags().StringSliceVar(&named, "host", nil,
		"map the host `NAME`, whatever its name is, and count it as enrolled (repeatable)")
	return cmd
}

func newListHosts() *cobra.Command {
	var opts manageOptions
	cmd := &cobra.Command{
		Use: "list-hosts", Aliases: []string{"list_hosts"}, Short: "List the hosts and their cells", Args: cobra.NoArgs,
		Long: "List the hosts and their cells, and the nodes that get no new " +
			"servers: those that are not mapped, those that several hosts\n" +
			"report, and those of a host as which several agents report. The " +
			"cells are asked for them; one that does not answer is left out.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return opts.run(cmd, func(ctx context.Context, d *operator.Deployment) error {
				list, err := d.ListHosts(ctx)
				if err != nil {
					return err
				}
				for _, c := range list.Down {
					_, _ = fmt.Fprintf(cmd.ErrOrStderr(),
						"Cell %s does not answer, so its problems are not listed.\n", c)
				}
				if opts.json() {
					return printJSON(cmd.OutOrStdout(), list.Hosts())
				}
				return render.HostList(cmd.OutOrStdout(), list)
			})
		},
	}
	opts.addFlags(cmd)
	return cmd
}

func newDeleteHost() *cobra.Command {
	var opts manageOptions
	var remove operator.DeleteOptions
	cmd := &cobra.Command{
		Use: "delete-host HOST", Aliases: []string{"delete_host"}, Short: "Unmap a host", Args: cobra.ExactArgs(1),
		Long: "Unmap a host, so that no new servers are scheduled to it, and free " +
			"its nodes for other hosts: those that it does not report, or\n" +
			"all, if its agent is down. Its servers stay. A host whose " +
			"agent still reports to its cell is mapped again at the next\n" +
			"discovery if it is enrolled, matches [compute_api] discover_hosts_pattern, " +
			"or is in a cell with auth = \"noauth\". To refuse a host\n" +
			"for good, use evict-host. The former name of a renamed host is free for another one then.\n\n" +
			"The command counts the servers that the cell has on the host, or " +
			"moves from there or to there, and the other consumers of its\n" +
			"resource providers in Placement. While there are any, it is refused " +
			"without --with-servers and their number, with exit code 3.\n\n" +
			"Its resource providers stay in Placement. --remove-providers " +
			"deletes them if nothing holds anything of them and the agent is\n" +
			"down, also of a host that is unmapped already; otherwise " +
			"nothing is changed, and the command lists what does.",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkWithServers(remove.WithServers); err != nil {
				return &exitError{exitUsage, err}
			}
			remove.Host = args[0]
			return opts.run(cmd, func(ctx context.Context, d *operator.Deployment) error {
				r, err := d.DeleteHost(ctx, remove)
				if r != nil {
					err = errors.Join(err, render.HostRemoval(cmd.OutOrStdout(), cmd.ErrOrStderr(), r))
				}
				return err
			})
		},
	}
	opts.addFlags(cmd)
	addWithServers(cmd, &remove.WithServers)
	cmd.Flags().BoolVar(&remove.RemoveProviders, "remove-providers", false,
		"delete its resource providers from Placement as well, if nothing holds anything of them")
	return cmd
}

func newRenameHost() *cobra.Command {
	var opts manageOptions
	var withServers string
	cmd := &cobra.Command{
		Use: "rename-host HOST NAME", Aliases: []string{"rename_host"},
		Short: "Give a host another name, with its servers", Args: cobra.ExactArgs(2),
		Long: "Give a host another name while servers are on it. Its guests go " +
			"on running; servers, allocations, resource providers, aggregates\n" +
			"and the uuids of all of them stay. Its agent must be stopped until " +
			"it counts as down, and gets the new name afterwards; the command\n" +
			"prints the commands for the host. Compute nodes that are named " +
			"HOST or HOST.DOMAIN are named NAME or NAME.DOMAIN then.\n\n" +
			"The command is refused, with exit code 3 and nothing changed, while " +
			"the agent reports, while servers on the host have a task, are\n" +
			"being placed there, or move from there or to there, if the cell or " +
			"Placement does not answer, and if another host has the name or\n" +
			"one that overlaps with it. While servers or other consumers are on the host, it is refused without " +
			"--with-servers and their number.\n\n" +
			"If it ends in the middle, run it again: it goes on where it " +
			"stopped. The former name is evicted then, so that an agent which\n" +
			"still has it does not come back; `cells manage delete-host HOST` frees it for another host.",
		RunE: func(cmd *cobra.Command, args []string) error {
			err := errors.Join(pki.CheckName(args[1]), checkWithServers(withServers))
			if err == nil && args[0] == args[1] {
				err = errors.New("the new name is that of the host")
			}
			if err != nil {
				return &exitError{exitUsage, err}
			}
			return showOn(cmd, &opts, render.HostRenamed,
				func(ctx context.Context, d *operator.Deployment) (*operator.Renamed, error) {
					return d.RenameHost(ctx, args[0], args[1], withServers)
				})
		},
	}
	opts.addFlags(cmd)
	addWithServers(cmd, &withServers)
	return cmd
}
