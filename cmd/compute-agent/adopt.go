// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/agent/commands"
	"github.com/compute-agent/compute-agent/internal/agent/control"
)

// newAdopt reconciles this host's identity with what Placement has.
func newAdopt() *cobra.Command {
	var opts cli.Options
	var adoption commands.AdoptOptions
	var ok cli.Consent
	cmd := &cobra.Command{
		Use:   "adopt [--uuid UUID] [--rename] | --as-new | --give-back",
		Short: "Take over a resource provider that exists under another uuid or name, or give one back",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := adoption.Check(); err != nil {
				return cli.Exit(cli.ExitUsage, err)
			}
			cfg, err := opts.Load()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), cli.AskTimeout+cfg.Tracker.PassDeadline)
			defer cancel()
			if !ok.DryRun {
				adoption.Confirm = func(plan control.Adoption) (bool, error) {
					if !opts.JSON() && !ok.Yes {
						if err := render.Adoption(cli.Screen(cmd.OutOrStdout()), plan); err != nil {
							return false, err
						}
					}
					return ok.Confirm(cmd)
				}
			}
			plan, err := commands.Adopt(ctx, cfg, cli.NewLogger(cfg, cmd.ErrOrStderr()).Level(zerolog.WarnLevel),
				adoption)
			if err != nil {
				return err
			}
			return cli.Print(cmd, &opts, plan, func(w io.Writer, plan control.Adoption) error {
				if !plan.Done && !ok.DryRun {
					_, err := fmt.Fprintln(w, "Nothing was changed.")
					return err
				}
				return render.Adoption(w, plan)
			})
		},
	}
	opts.AddFlags(cmd)
	ok.AddFlags(cmd)
	cmd.Flags().StringVar(&adoption.Node, "node", "", "`NAME` of the compute node (default: that of the host)")
	cmd.Flags().StringVar(&adoption.UUID, "uuid", "", "`UUID` of the resource provider that is this host's")
	cmd.Flags().BoolVar(&adoption.Rename, "rename", false,
		"rename the provider, and those named after it, to the node's name")
	cmd.Flags().BoolVar(&adoption.AsNew, "as-new", false, "create a node again in a Placement that does not have it")
	addWithServers(cmd, &adoption.WithServers)
	cmd.Flags().BoolVar(&adoption.GiveBack, "give-back", false,
		"restore the resource providers to their state before this agent adopted them")
	return cmd
}

// addWithServers adds the flag by which an operator says that what is on a host is known.
func addWithServers(cmd *cobra.Command, into *string) {
	cmd.Flags().StringVar(into, "with-servers", "",
		"go on although the host has `N` servers and other consumers (unknown: although that cannot be found out)")
}
