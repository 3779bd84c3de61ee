// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"io"

	"github.com/spf13/cobra"

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
		Long: "Replace OpenStack's Placement in place, on its own database (MariaDB, MySQL, PostgreSQL or SQLite; " +
			"alembic versions from Xena on).\n\n" +
			"--check, the default, reads the database and changes nothing: " +
			"it prints what is in it, what is unusual and what that means.\n" +
			"--apply adds a few small tables of compute-agent, and triggers " +
			"that refuse what OpenStack's Placement would write while\n" +
			"compute-agent serves. It refuses while other programs are " +
			"connected. --hand-back removes both again, and refuses while a\n" +
			"server of compute-agent uses the database. No row of OpenStack's " +
			"is changed by either. Both can be repeated, and may be\n" +
			"ended at any moment. The databases of Nova itself (nova_api, nova, nova_cell0) are not adopted.\n\n" +
			"Exit codes: 0 done, or can be done; 1 failed; 3 refused, " +
			"nothing was changed; 64 wrong usage; 78 invalid configuration.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if check && apply || check && handBack || apply && handBack {
				return &exitError{exitUsage, errors.New("choose one of --check, --apply and --hand-back")}
			}
			if (check || !apply && !handBack) && (how.Force || how.WithoutGuard) || handBack && how.WithoutGuard {
				return &exitError{exitUsage,
					errors.New("--force is for --apply and --hand-back, --without-guard for --apply")}
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
			done, err := withProgressOf(cmd, what, func(*render.Progress) (store.Adopted, error) {
				return do(cmd.Context(), cfg, how)
			})
			if err != nil {
				return err
			}
			return printResult(cmd, &opts.options, done, func(w io.Writer, done store.Adopted) error {
				return render.Adopted(w, done, handBack)
			})
		},
	}
	opts.addFlags(cmd)
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
	found, err := withProgressOf(cmd, "Checking the database", func(*render.Progress) (store.Adoption, error) {
		return placement.CheckAdoption(cmd.Context(), cfg)
	})
	if err != nil {
		return err
	}
	err = printResult(cmd, &o.options, &found, render.AdoptionCheck)
	if err == nil && (found.State == store.StateEmpty || found.MustRepair()) {
		err = &exitError{code: exitProtect}
	}
	return err
}
