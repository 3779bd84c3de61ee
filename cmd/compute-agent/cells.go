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
	"github.com/compute-agent/compute-agent/cells/compute"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/internal/agent"
	"github.com/compute-agent/compute-agent/internal/agent/access"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/extraspecs"
	"github.com/compute-agent/compute-agent/internal/keystone"
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
	cmd.Long = "Serve a Nova-compatible compute API over cells: `cells api` serves the API, `cells serve` serves one cell, and `cells manage`\n" +
		"registers cells with the API. `cells db` and `cells backup` are about the database of a cell. Agents find their cell by [cell_client]."
	return cmd
}

func newCellsAPI() *cobra.Command {
	opts := options{uses: config.SectionsOf(config.ComputeAPIService)}
	var listen, database, auth, tokenFile string
	cmd := &cobra.Command{
		Use: "api", Short: "Serve the compute API", Args: cobra.NoArgs,
		Long: "Serve the compute API, schedule servers, and reconcile its database with those of the cells, as configured in [compute_api],\n" +
			"[quota], [scheduler] and [placement_client]. The API database is created if it does not exist; `compute-agent cells manage create` registers\n" +
			"cells.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts.override(
				cmd,
				map[string]string{"listen": "compute_api.listen", "database": "compute_api.database", "auth": "compute_api.auth", "token-file": "compute_api.token_file"},
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
	cmd.Flags().StringVar(&auth, "auth", "", "`METHOD` of authentication: noauth (loopback only), token or keystone (compute_api.auth)")
	cmd.Flags().StringVar(&tokenFile, "token-file", "", "`FILE` of the tokens, for --auth token (compute_api.token_file)")
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
	made, err := computeAPIConfig(ctx, cfg, log)
	if err != nil {
		return err
	}
	if cfg.DenyList.URL != "" {
		return fmt.Errorf("%w: deny_list.url is for Placement and cells: the compute API serves the list, from deny_list.file and the hosts that were evicted", config.ErrInvalid)
	}
	if made.Denied, err = openDenyList(cfg.DenyList, log); err != nil {
		return err
	}
	l, err := osapi.Listen(ctx, cfg.ComputeAPI.Listen)
	if err != nil {
		return fmt.Errorf("cannot serve the compute API on %s: %w; choose another address with --listen", cfg.ComputeAPI.Listen, err)
	}
	audit, err := openAudit(cfg, log)
	if err != nil {
		_ = l.Close()
		return err
	}
	defer closeAudit(audit, log)
	if made.Tracing, err = agent.StartTracing(ctx, cfg, agent.TracedComputeAPI, log); err != nil {
		_ = l.Close()
		return err
	}
	defer made.Tracing.Close(ctx)
	made.Audit = audit
	made.Progress = starting(notify, log)
	api, err := cells.NewAPI(ctx, made)
	if err != nil {
		_ = l.Close()
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
		log.Warn().Msg("No cell is registered, so no server can be created. Run `compute-agent cells manage create` for cell0 and for each cell.")
	}
	service := served{
		what: "the compute API", plain: cfg.ComputeAPI.CertFile == "", tls: "cert_file and key_file",
		watched: watchComputeAPI(cfg, api), serve: api.Serve,
	}
	if service.serve, err = withEnrolment(ctx, cfg, api, made, log); err != nil {
		_ = l.Close()
		return err
	}
	if err := service.run(ctx, l, notify, log); err != nil {
		return err
	}
	log.Info().Msg("The compute API has stopped. Unfinished work continues at the next start.")
	return nil
}

// computeAPIConfig converts the configuration of a compute API.
func computeAPIConfig(ctx context.Context, cfg *config.Config, log zerolog.Logger) (cells.APIConfig, error) {
	c := cfg.ComputeAPI
	_, database, err := cells.DatabaseOf(c.Database, cfg.Agent.StateDir, cells.APIDatabase)
	if err != nil {
		return cells.APIConfig{}, err
	}
	auth, err := computeAuth(ctx, cfg, log)
	if err != nil {
		return cells.APIConfig{}, err
	}
	placement, err := access.New(cfg.PlacementClient, nil, log)
	if err != nil {
		return cells.APIConfig{}, fmt.Errorf("%w: %w", config.ErrInvalid, err)
	}
	placement.Retries = 0                                                      // users wait for the answers, and the scheduler has its own back-off
	if _, err := access.CellsOf(c).Cell("http://127.0.0.1", log); err != nil { // check its files now, not at the first request
		return cells.APIConfig{}, fmt.Errorf("%w: %w", config.ErrInvalid, err)
	}
	aliases, err := extraspecs.ParseAliases(c.PCIAlias)
	if err != nil {
		return cells.APIConfig{}, fmt.Errorf("%w: compute_api.pci_alias: %w", config.ErrInvalid, err)
	}
	return cells.APIConfig{
		Database: database,
		Auth:     auth, Open: c.Auth == config.AuthNoauth,
		TLS:          osapi.TLSFiles{CertFile: c.CertFile, KeyFile: c.KeyFile, ClientCAFile: c.ClientCAFile},
		Certificates: []string{c.CellCertFile, cfg.PlacementClient.CertFile},
		PolicyFile:   c.PolicyFile,
		Options: compute.Options{
			MaxLimit:           c.MaxLimit,
			ListSkipsDownCells: c.ListRecordsBySkippingDownCells,
			PerProjectCells:    c.InstanceListPerProjectCells,
			DefaultZone:        c.DefaultAvailabilityZone,
			InternalZone:       c.InternalServiceZone,
			ScheduleZone:       c.DefaultScheduleZone,
			Reclaim:            c.ReclaimInstanceInterval,
			ConfirmAfter:       c.ResizeConfirmWindow,
			Endpoint:           c.Endpoint,
			ConsoleURL:         c.SerialConsoleBaseURL,
			TokenTTL:           c.ConsoleTokenTTL,
		},
		CellClient: cellClients(cfg, log), CellTimeout: c.CellTimeout, CellPingInterval: c.CellPingInterval, CellDownTime: c.CellDownTime,
		Placement: placement.Config,
		Quotas:    quotaDefaults(cfg.Quota), CountUsageFromPlacement: cfg.Quota.CountUsageFromPlacement, RecheckQuota: cfg.Quota.RecheckQuota,
		MaxPlacementResults: cfg.Scheduler.MaxPlacementResults,
		MaxAttempts:         cfg.Scheduler.MaxAttempts,
		Aggregates: scheduler.AggregateOptions{
			LimitTenants: cfg.Scheduler.LimitTenants, RequireTenants: cfg.Scheduler.RequireTenants,
			LocalZones: !cfg.Scheduler.ZonesFromPlacement, Isolate: cfg.Scheduler.IsolateAggregates,
			RequiredMembers: cfg.Scheduler.RequiredMemberPrefix, ForbiddenMembers: cfg.Scheduler.DefaultForbiddenMemberPrefix,
		},
		Aliases: aliases, DiscoverHosts: c.DiscoverHostsInterval, DiscoverPatterns: c.DiscoverHostsPattern, Connections: connectionsOf(cfg), Logger: log,
	}, nil
}

// cellClients returns a constructor of the compute API's client of a cell.
func cellClients(cfg *config.Config, log zerolog.Logger) func(apidb.Cell) (*cellclient.Client, error) {
	credentials := access.CellsOf(cfg.ComputeAPI)
	return func(c apidb.Cell) (*cellclient.Client, error) {
		made, err := credentials.Cell(c.URL, log)
		if err != nil {
			return nil, err
		}
		made.Cell = c.Name
		return cellclient.New(made)
	}
}

func quotaDefaults(q config.Quota) apidb.QuotaSet {
	return apidb.QuotaSet{
		"instances": int64(q.Instances), "cores": int64(q.Cores), "ram": int64(q.RAM), "metadata_items": int64(q.MetadataItems),
		"key_pairs": int64(q.KeyPairs), "server_groups": int64(q.ServerGroups), "server_group_members": int64(q.ServerGroupMembers),
	}
}

// computeAuth returns the authentication of the compute API.
func computeAuth(ctx context.Context, cfg *config.Config, log zerolog.Logger) (osapi.Authenticator, error) {
	c := cfg.ComputeAPI
	switch c.Auth {
	case config.AuthToken:
		tokens, err := osapi.OpenTokens(c.TokenFile, log)
		if err != nil {
			return nil, fmt.Errorf("%w: compute_api.token_file: %w", config.ErrInvalid, err)
		}
		return tokens, nil
	case config.AuthKeystone:
		authenticator, err := keystone.NewAuthenticator(keystoneConfig(cfg.Keystone, log))
		if err != nil {
			return nil, fmt.Errorf("%w: [keystone]: %w", config.ErrInvalid, err)
		}
		if err := authenticator.Check(ctx); err != nil {
			log.Error().Err(err).Msg("Keystone cannot validate tokens yet. Requests get status 503 until it can; each request retries.")
		}
		return authenticator, nil
	}
	return osapi.NoAuth{}, nil
}
