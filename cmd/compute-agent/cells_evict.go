// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cells/operator"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
)

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
