// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cells"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/controlplane"
	"github.com/compute-agent/compute-agent/internal/osapi"
)

func newCells() *cobra.Command {
	cmd := group(
		"cells",
		"Serve a Nova-compatible compute API over cells",
		newCellsAPI(),
		newCellsServe(),
		newCellsManage(),
		newCellDB(),
		newBackup(cellStored()),
		newRestore(cellStored()),
		newCheck(cellStored()),
	)
	cmd.Long = "Serve a Nova-compatible compute API over cells: `cells api` serves " +
		"the API, `cells serve` serves one cell, and `cells manage`\n" +
		"registers cells with the API. `cells db` and `cells backup` are about " +
		"the database of a cell. Agents find their cell by [cell_client]."
	return cmd
}

func newCellsAPI() *cobra.Command {
	opts := options{uses: config.SectionsOf(config.ComputeAPIService)}
	var listen, database, auth, tokenFile string
	cmd := &cobra.Command{
		Use: "api", Short: "Serve the compute API", Args: cobra.NoArgs,
		Long: "Serve the compute API, schedule servers, and reconcile its database " +
			"with those of the cells, as configured in [compute_api],\n" +
			"[quota], [scheduler] and [placement_client]. The API database is created if it does not exist; " +
			"`compute-agent cells manage create` registers\n" +
			"cells.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts.applyFlags(
				cmd,
				map[string]string{"listen": "compute_api.listen", "database": "compute_api.database",
					"auth": "compute_api.auth", "token-file": "compute_api.token_file"},
			)
			cfg, err := opts.load()
			if err != nil {
				return err
			}
			admin := func(api *cells.API) osapi.Admin { return watchComputeAPI(cfg, api) }
			return controlplane.ServeComputeAPI(cmd.Context(), cfg, admin, newLogger(cfg, cmd.ErrOrStderr()))
		},
	}
	opts.addConfigFlags(cmd)
	cmd.Flags().StringVar(&listen, "listen", "", "`ADDRESS` to listen on (compute_api.listen)")
	cmd.Flags().StringVar(&database, "database", "", "`DSN` of the API database (compute_api.database)")
	cmd.Flags().StringVar(&auth, "auth", "",
		"`METHOD` of authentication: noauth (loopback only), token or keystone (compute_api.auth)")
	cmd.Flags().StringVar(&tokenFile, "token-file", "",
		"`FILE` of the tokens, for --auth token (compute_api.token_file)")
	return cmd
}

// applyFlags makes given flags override the configuration.
func (o *options) applyFlags(cmd *cobra.Command, keys map[string]string) {
	for flag, key := range keys {
		if f := cmd.Flags().Lookup(flag); f.Changed {
			o.extra = append(o.extra, config.Override{Key: key, Value: f.Value.String(), Flag: "--" + flag})
		}
	}
}
