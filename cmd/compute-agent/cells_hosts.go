// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cells/operator"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/agent/commands"
	"github.com/compute-agent/compute-agent/internal/pki"
)

func newDiscoverHosts() *cobra.Command {
	var opts manageOptions
	var named []string
	cmd := &cobra.Command{
		Use: "discover-hosts [CELL]", Aliases: []string{"discover_hosts"},
		Short: "Map hosts that registered with their cells", Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var cell *string
			if len(args) == 1 {
				cell = &args[0]
			}
			return opts.run(cmd, func(ctx context.Context, d *operator.Deployment) error {
				found, err := d.DiscoverHosts(ctx, cell, named)
				if found != nil {
					err = errors.Join(cli.Print(cmd, &opts.Options, found, render.HostDiscovery), err)
				}
				return err
			})
		},
	}
	opts.AddFlags(cmd)
	cmd.Flags().StringSliceVar(&named, "host", nil,
		"map the host `NAME`, whatever its name is, and count it as enrolled (repeatable)")
	return cmd
}

func newListHosts() *cobra.Command {
	var opts manageOptions
	cmd := &cobra.Command{
		Use: "list-hosts", Aliases: []string{"list_hosts"}, Short: "List the hosts and their cells", Args: cobra.NoArgs,
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
				if opts.JSON() {
					return cli.PrintJSON(cmd.OutOrStdout(), list.Hosts())
				}
				return render.HostList(cmd.OutOrStdout(), list)
			})
		},
	}
	opts.AddFlags(cmd)
	return cmd
}

func newDeleteHost() *cobra.Command {
	var opts manageOptions
	var remove operator.DeleteOptions
	cmd := &cobra.Command{
		Use: "delete-host HOST", Aliases: []string{"delete_host"}, Short: "Unmap a host", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := commands.CheckWithServers(remove.WithServers); err != nil {
				return cli.Exit(cli.ExitUsage, err)
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
	opts.AddFlags(cmd)
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
		RunE: func(cmd *cobra.Command, args []string) error {
			err := errors.Join(pki.CheckName(args[1]), commands.CheckWithServers(withServers))
			if err == nil && args[0] == args[1] {
				err = errors.New("the new name is that of the host")
			}
			if err != nil {
				return cli.Exit(cli.ExitUsage, err)
			}
			return showOn(cmd, &opts, render.HostRenamed,
				func(ctx context.Context, d *operator.Deployment) (*operator.Renamed, error) {
					return d.RenameHost(ctx, args[0], args[1], withServers)
				})
		},
	}
	opts.AddFlags(cmd)
	addWithServers(cmd, &withServers)
	return cmd
}

func newEvictHost() *cobra.Command {
	var opts manageOptions
	var evict operator.EvictOptions
	cmd := &cobra.Command{
		Use: "evict-host HOST", Aliases: []string{"evict_host"}, Args: cobra.ExactArgs(1),
		Short: "Refuse a host that is stolen or lost, and list what it may have read",
		RunE: func(cmd *cobra.Command, args []string) error {
			evict.Host = args[0]
			return opts.run(cmd, func(ctx context.Context, d *operator.Deployment) error {
				v, err := d.EvictHost(ctx, evict)
				if err != nil {
					return err
				}
				err = cli.Print(cmd, &opts.Options, v, render.HostEviction)
				if len(v.Failed) > 0 {
					err = fmt.Errorf(
						"host %s is refused, but not all cells answered: run the command again when they do", v.Host)
				}
				return err
			})
		},
	}
	opts.AddFlags(cmd)
	cmd.Flags().StringVar(&evict.Reason, "reason", "", "`TEXT` for people, shown wherever the host is refused")
	cmd.Flags().BoolVar(&evict.DespiteClock, "despite-clock", false,
		"evict the host though the clocks of this machine and of a cell differ")
	return cmd
}

func newAllowHost() *cobra.Command {
	var opts manageOptions
	cmd := &cobra.Command{
		Use: "allow-host HOST", Aliases: []string{"allow_host"}, Args: cobra.ExactArgs(1),
		Short: "End that a host is refused until a time in the future",
		RunE: func(cmd *cobra.Command, args []string) error {
			return showOn(cmd, &opts, render.HostAllowed,
				func(ctx context.Context, d *operator.Deployment) (*operator.Allowed, error) {
					return d.AllowHost(ctx, args[0])
				})
		},
	}
	opts.AddFlags(cmd)
	return cmd
}
