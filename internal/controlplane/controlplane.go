// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells"
	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cell"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/compute"
	"github.com/compute-agent/compute-agent/cells/scheduler/placementcalls"
	"github.com/compute-agent/compute-agent/internal/agent/access"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/extraspecs"
	"github.com/compute-agent/compute-agent/internal/keystone"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/internal/version"
)

// computeAPI is what a compute API is made with. It reads the files that the configuration names,
// and asks Keystone, if that is to authenticate clients, whether it can: only the log says that it
// cannot.
//
// Errors: [config.ErrInvalid]; [cells.ErrConfig].
func computeAPI(ctx context.Context, cfg *config.Config, of Process, log zerolog.Logger) (cells.APIConfig, error) {
	c := cfg.ComputeAPI
	_, database, err := cells.DatabaseOf(c.Database, cfg.Agent.StateDir, cells.APIDatabase)
	if err != nil {
		return cells.APIConfig{}, err
	}
	auth, err := authenticator(ctx, c, of.Keystone, log)
	if err != nil {
		return cells.APIConfig{}, err
	}
	placement, err := access.New(cfg.PlacementClient, nil, log)
	if err != nil {
		return cells.APIConfig{}, fmt.Errorf("%w: %w", config.ErrInvalid, err)
	}
	// users wait for the answers, and the scheduler has its own back-off
	placement.Retries = 0
	// check its files now, not at the first request
	if _, err := access.CellsOf(c).Cell("http://127.0.0.1", log); err != nil {
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
		CellClient: cellClients(cfg, log), CellTimeout: c.CellTimeout, CellPingInterval: c.CellPingInterval,
		CellDownTime: c.CellDownTime,
		Placement:    placement.Config,
		Quotas:       quotaDefaults(cfg.Quota), CountUsageFromPlacement: cfg.Quota.CountUsageFromPlacement,
		RecheckQuota:        cfg.Quota.RecheckQuota,
		MaxPlacementResults: cfg.Scheduler.MaxPlacementResults,
		MaxAttempts:         cfg.Scheduler.MaxAttempts,
		Aggregates: placementcalls.AggregateOptions{
			LimitTenants: cfg.Scheduler.LimitTenants, RequireTenants: cfg.Scheduler.RequireTenants,
			LocalZones: !cfg.Scheduler.ZonesFromPlacement, Isolate: cfg.Scheduler.IsolateAggregates,
			RequiredMembers:  cfg.Scheduler.RequiredMemberPrefix,
			ForbiddenMembers: cfg.Scheduler.DefaultForbiddenMemberPrefix,
		},
		Aliases: aliases, DiscoverHosts: c.DiscoverHostsInterval, DiscoverPatterns: c.DiscoverHostsPattern,
		Connections: of.Connections, Logger: log,
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
		"instances": int64(q.Instances), "cores": int64(q.Cores), "ram": int64(q.RAM),
		"metadata_items": int64(q.MetadataItems),
		"key_pairs":      int64(q.KeyPairs), "server_groups": int64(q.ServerGroups),
		"server_group_members": int64(q.ServerGroupMembers),
	}
}

// authenticator returns the authentication of the compute API.
func authenticator(
	ctx context.Context, c config.ComputeAPI, service keystone.AuthenticatorConfig, log zerolog.Logger,
) (osapi.Authenticator, error) {
	switch c.Auth {
	case config.AuthToken:
		tokens, err := osapi.OpenTokens(c.TokenFile, log)
		if err != nil {
			return nil, fmt.Errorf("%w: compute_api.token_file: %w", config.ErrInvalid, err)
		}
		return tokens, nil
	case config.AuthKeystone:
		authenticator, err := keystone.NewAuthenticator(service)
		if err != nil {
			return nil, fmt.Errorf("%w: [keystone]: %w", config.ErrInvalid, err)
		}
		if err := authenticator.Check(ctx); err != nil {
			log.Error().Err(err).
				Msg("Keystone cannot validate tokens yet. Requests get status 503 until it can; each request retries.")
		}
		return authenticator, nil
	}
	return osapi.NoAuth{}, nil
}

// Cell is what a cell is made with that has a name and the database at an address. It reads the
// files that the configuration names.
//
// Errors: [config.ErrInvalid].
func Cell(cfg *config.Config, name, database string, of Process, log zerolog.Logger) (cells.CellConfig, error) {
	c := cfg.Cell
	auth := cell.NoAuth()
	switch c.Auth {
	case config.AuthToken:
		tokens, err := osapi.OpenTokens(c.TokenFile, log)
		if err != nil {
			return cells.CellConfig{}, fmt.Errorf("%w: cell.token_file: %w", config.ErrInvalid, err)
		}
		auth = cell.Tokens(tokens)
	case config.AuthPeer:
		peers, err := cell.Peer(c.APIUsers, c.AgentUsers, cfg.Agent.Host)
		if err != nil {
			return cells.CellConfig{}, fmt.Errorf("%w: cell.%w", config.ErrInvalid, err)
		}
		auth = peers
	case config.AuthMTLS:
		auth = cell.MutualTLS(c.APINames)
	}
	return cells.CellConfig{
		Name: name, Database: database, Auth: auth,
		TLS: osapi.TLSFiles{CertFile: c.CertFile, KeyFile: c.KeyFile, ClientCAFile: c.PeerCAFile,
			MinVersion: cellclient.MinTLS},
		MaxNodes: c.MaxNodesPerHost, ForgetNodes: c.ForgetNodesAfter,
		ReportInterval: c.ReportInterval, ServiceDownTime: c.ServiceDownTime, Version: version.Number(),
		Connections: of.Connections, Logger: log,
	}, nil
}

// CellDatabase is the address of a cell's database.
func CellDatabase(cfg *config.Config) string {
	if cfg.Cell.Database != "" {
		return cfg.Cell.Database
	}
	return filepath.Join(cfg.Agent.StateDir, cells.CellDatabase)
}
