// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/cells"
	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/internal/agent"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/controlplane"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/internal/version"
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
			opts.override(
				cmd,
				map[string]string{"listen": "compute_api.listen", "database": "compute_api.database",
					"auth": "compute_api.auth", "token-file": "compute_api.token_file"},
			)
			cfg, err := opts.load()
			if err != nil {
				return err
			}
			return serveComputeAPI(cmd.Context(), cfg, newLogger(cfg, cmd.ErrOrStderr()))
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

// override makes given flags override the configuration.
func (o *options) override(cmd *cobra.Command, keys map[string]string) {
	for flag, key := range keys {
		if f := cmd.Flags().Lookup(flag); f.Changed {
			o.extra = append(o.extra, config.Override{Key: key, Value: f.Value.String(), Flag: "--" + flag})
		}
	}
}

func serveComputeAPI(ctx context.Context, cfg *config.Config, log zerolog.Logger) error {
	limitMemory(serviceMemory, log)
	notify := notifier(log)
	made, err := controlplane.ComputeAPI(ctx, cfg, processOf(cfg, log), log)
	if err != nil {
		return err
	}
	if cfg.DenyList.URL != "" {
		return fmt.Errorf(
			"%w: deny_list.url is for Placement and cells: the compute API serves the list, from deny_list.file and "+
				"the hosts that were evicted", config.ErrInvalid)
	}
	if made.Denied, err = openDenyList(cfg.DenyList, log); err != nil {
		return err
	}
	l, err := osapi.Listen(ctx, cfg.ComputeAPI.Listen)
	if err != nil {
		return fmt.Errorf("cannot serve the compute API on %s: %w; choose another address with --listen",
			cfg.ComputeAPI.Listen, err)
	}
	defer func() { _ = l.Close() }() // once more than the service does, or alone on an error
	audit, err := openAudit(cfg, log)
	if err != nil {
		return err
	}
	defer closeAudit(audit, log)
	if made.Tracing, err = agent.StartTracing(ctx, cfg, agent.TracedComputeAPI, log); err != nil {
		return err
	}
	defer made.Tracing.Close(ctx)
	made.Audit = audit
	made.Progress = starting(notify, log)
	api, err := cells.NewAPI(ctx, made)
	if err != nil {
		return err
	}
	defer func() { _ = api.Close() }()
	log.Info().
		Str("address", l.Addr().String()).
		Str("auth", cfg.ComputeAPI.Auth).
		Str("database", api.Database()).
		Str("version", version.Number()).
		Msg("The compute API is serving.")
	if known, err := api.Store().Cells(ctx); err == nil && len(known) == 0 {
		log.Warn().Msg("No cell is registered, so no server can be created. Run `compute-agent cells manage create` " +
			"for cell0 and for each cell.")
	}
	service := served{
		what: "the compute API", plain: cfg.ComputeAPI.CertFile == "", tls: "cert_file and key_file",
		watched: watchComputeAPI(cfg, api), serve: api.Serve,
	}
	if service.serve, err = withEnrolment(ctx, cfg, api, made, log); err != nil {
		return err
	}
	if err := service.run(ctx, l, notify, log); err != nil {
		return err
	}
	log.Info().Msg("The compute API has stopped. Unfinished work continues at the next start.")
	return nil
}

// processOf is what the services of this process share.
func processOf(cfg *config.Config, log zerolog.Logger) controlplane.Process {
	return controlplane.Process{Connections: connectionsOf(cfg), Keystone: keystoneConfig(cfg.Keystone, log)}
}

// cellClients returns a constructor of the compute API's client of a cell.
func cellClients(cfg *config.Config, log zerolog.Logger) func(apidb.Cell) (*cellclient.Client, error) {
	return controlplane.CellClients(cfg, log)
}
