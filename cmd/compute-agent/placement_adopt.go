// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/placement/store"
)

func newPlacementAdopt() *cobra.Command {
	var opts databaseOptions
	var check, apply, handBack bool
	var how store.AdoptOptions
	cmd := &cobra.Command{
		Use:   "adopt [--check | --apply | --hand-back]",
		Short: "Serve a database that OpenStack Placement made, or hand it back", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if check && apply || check && handBack || apply && handBack {
				return cli.Exit(cli.ExitUsage, errors.New("choose one of --check, --apply and --hand-back"))
			}
			if (check || !apply && !handBack) && (how.Force || how.WithoutGuard) || handBack && how.WithoutGuard {
				return cli.Exit(cli.ExitUsage,
					errors.New("--force is for --apply and --hand-back, --without-guard for --apply"))
			}
			cfg, err := opts.placementConfig()
			if err != nil {
				return err
			}
			if !apply && !handBack {
				return opts.checkAdoption(cmd, cfg)
			}
			do, what := placement.Adopt, "Adopting the database"
			if handBack {
				do, what = placement.HandBack, "Handing the database back"
			}
			done, err := cli.WithProgressOf(cmd, what, func(*render.Progress) (store.Adopted, error) {
				return do(cmd.Context(), cfg, how)
			})
			if err != nil {
				return err
			}
			return cli.Print(cmd, &opts.Options, done, func(w io.Writer, done store.Adopted) error {
				return render.Adopted(w, done, handBack)
			})
		},
	}
	opts.AddFlags(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&check, "check", false, "look only (the default)")
	flags.BoolVar(&apply, "apply", false, "adopt the database")
	flags.BoolVar(&handBack, "hand-back", false, "give the database back to OpenStack's Placement")
	flags.BoolVar(&how.Force, "force", false, "go on although other programs are connected to the database")
	flags.BoolVar(&how.WithoutGuard, "without-guard", false,
		"make no triggers: nothing then keeps OpenStack's Placement from writing")
	return cmd
}

func (o *databaseOptions) checkAdoption(cmd *cobra.Command, cfg placement.Config) error {
	found, err := cli.WithProgressOf(cmd, "Checking the database", func(*render.Progress) (store.Adoption, error) {
		return placement.CheckAdoption(cmd.Context(), cfg)
	})
	if err != nil {
		return err
	}
	err = cli.Print(cmd, &o.Options, &found, render.AdoptionCheck)
	if err == nil && (found.State == store.StateEmpty || found.MustRepair()) {
		err = cli.Exit(cli.ExitProtect, nil)
	}
	return err
}
