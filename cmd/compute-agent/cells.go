// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cells"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/controlplane"
	"github.com/compute-agent/compute-agent/internal/osapi"
)

func newCells() *cobra.Command {
	return group("cells", "Serve a Nova-compatible compute API over cells",
		newCellsAPI(), newCellsServe(), newCellsManage(), newCellDB(),
		cli.NewBackup(cellStored()), cli.NewRestore(cellStored()), cli.NewCheck(cellStored()))
}

func newCellsAPI() *cobra.Command {
	opts := cli.Options{Uses: config.SectionsOf(config.ComputeAPIService)}
	var listen, database, auth, tokenFile string
	cmd := &cobra.Command{
		Use: "api", Short: "Serve the compute API", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts.ApplyFlags(cmd, map[string]string{"listen": "compute_api.listen", "database": "compute_api.database",
				"auth": "compute_api.auth", "token-file": "compute_api.token_file"})
			cfg, err := opts.Load()
			if err != nil {
				return err
			}
			admin := func(api *cells.API) osapi.Admin { return watchComputeAPI(cfg, api) }
			return controlplane.ServeComputeAPI(cmd.Context(), cfg, admin, cli.NewLogger(cfg, cmd.ErrOrStderr()))
		},
	}
	opts.AddConfigFlags(cmd)
	cmd.Flags().StringVar(&listen, "listen", "", "`ADDRESS` to listen on (compute_api.listen)")
	cmd.Flags().StringVar(&database, "database", "", "`DSN` of the API database (compute_api.database)")
	cmd.Flags().StringVar(&auth, "auth", "",
		"`METHOD` of authentication: noauth (loopback only), token or keystone (compute_api.auth)")
	cmd.Flags().StringVar(&tokenFile, "token-file", "",
		"`FILE` of the tokens, for --auth token (compute_api.token_file)")
	return cmd
}
