// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cells/operator"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
)

func newEvictHost() *cobra.Command {
	var opts manageOptions
	var evict operator.EvictOptions
	cmd := &cobra.Command{
		Use: "evict-host HOST", Aliases: []string{"evict_host"}, Args: cobra.ExactArgs(1),
		Short: "Refuse a host that is stolen or lost, and list what it may have read",
		Long: "Refuse a host from now on: its certificate is not renewed, and " +
			"is on the deny list, which Placement and cells follow. In its\n" +
			"cells its service is forced down and disabled, so that nothing " +
			"new is scheduled to it, and its servers can be evacuated. Then\n" +
			"list what the host may have read: the servers that are or were on " +
			"it. Running it again completes what a cell that was down has\n" +
			"missed; the exit code is 1 then.\n\n" +
			"The eviction has the time of this machine. If the clock of a cell " +
			"says another time, nothing is done: correct the clock that is\n" +
			"wrong, or add --despite-clock, and `cells manage allow-host HOST` later.\n\n" +
			"`cells manage add-host HOST --again` invites the host again.",
		RunE: func(cmd *cobra.Command, args []string) error {
			evict.Host = args[0]
			return opts.run(cmd, func(ctx context.Context, d *operator.Deployment) error {
				v, err := d.EvictHost(ctx, evict)
				if err != nil {
					return err
				}
				err = printResult(cmd, &opts.options, v, render.HostEviction)
				if len(v.Failed) > 0 {
					err = fmt.Errorf(
						"host %s is refused, but not all cells answered: run the command again when they do", v.Host)
				}
				return err
			})
		},
	}
	opts.addFlags(cmd)
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
		Long: "End that a host is refused until a time in the future: it was " +
			"evicted, or got its last certificate, while the clock of the\n" +
			"compute API was ahead, and could not be enrolled before that time. " +
			"From now on only its certificates from before now are refused.\n" +
			"An evicted host stays evicted; `cells manage add-host HOST --again` invites it.",
		RunE: func(cmd *cobra.Command, args []string) error {
			return showOn(cmd, &opts, render.HostAllowed,
				func(ctx context.Context, d *operator.Deployment) (*operator.Allowed, error) {
					return d.AllowHost(ctx, args[0])
				})
		},
	}
	opts.addFlags(cmd)
	return cmd
}
