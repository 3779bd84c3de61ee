// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cells/operator"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/placement/wire"
)

func newAdmitHost() *cobra.Command {
	var opts manageOptions
	var classes, traits []string
	var window, unknown bool
	cmd := &cobra.Command{
		Use: "admit-host HOST", Aliases: []string{"admit_host"}, Args: cobra.ExactArgs(1),
		Short: "State how much a host may report to Placement, or show it",
		RunE: func(cmd *cobra.Command, args []string) error {
			change, err := operator.ParseAdmission(classes, traits, window)
			if err != nil {
				return cli.Exit(cli.ExitUsage, err)
			}
			ask := func(ctx context.Context, d *operator.Deployment) (wire.HostAdmission, error) {
				host := args[0]
				if !unknown {
					if host, err = d.KnownHost(ctx, host); err != nil {
						return wire.HostAdmission{}, err
					}
				}
				return d.AdmitHost(ctx, host, change)
			}
			if !unknown {
				return showOn(cmd, &opts, render.HostAdmission, ask)
			}
			_, cfg, err := opts.location() // there may be no compute API
			if err != nil {
				return err
			}
			admission, err := ask(cmd.Context(), &operator.Deployment{Placement: cfg.PlacementClient})
			if err != nil {
				return err
			}
			return cli.Print(cmd, &opts.Options, admission, render.HostAdmission)
		},
	}
	opts.AddFlags(cmd)
	cmd.Flags().StringArrayVar(&classes, "class", nil,
		"`CLASS=AMOUNT` of a resource class that the host may report; several times for several classes")
	cmd.Flags().StringArrayVar(&traits, "trait", nil,
		"`TRAIT` that the host may report, with all traits of its first two words, such as HW_GPU; several times "+
			"for several kinds")
	cmd.Flags().BoolVar(&window, "window", false, "admit all that the host reports from now on, as when it came")
	cmd.Flags().BoolVar(&unknown, "unknown", false,
		"take the name as it is, though no host of that name is enrolled or mapped; needs no API database")
	return cmd
}
