// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"path/filepath"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/agent"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/internal/version"
	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/placement/api"
)

// Listening is how a Placement service listens and authenticates clients, which is no part of the
// configuration.
type Listening struct {
	Address, Auth, TokenFile string
}

// Placement returns the configuration of a Placement service. connections bounds the connections of
// all servers of the process; nil if the service does not serve clients.
func Placement(cfg *config.Config, on Listening, connections *osapi.Connections, log zerolog.Logger) placement.Config {
	return placement.Config{
		StateDir: filepath.Clean(cfg.Agent.StateDir), Database: cfg.Placement.Database, Listen: on.Address,
		Auth: placement.Auth{Strategy: placement.Strategy(on.Auth), TokenFile: on.TokenFile,
			Keystone: keystoneConfig(cfg.Keystone, log)},
		Policy:     api.Defaults(cfg.Policy.Defaults),
		PolicyFile: cfg.Policy.File,
		TLS: osapi.TLSFiles{
			CertFile: cfg.PlacementTLS.CertFile, KeyFile: cfg.PlacementTLS.KeyFile,
			ClientCAFile: cfg.PlacementTLS.ClientCAFile, HostCAFile: cfg.PlacementTLS.HostCAFile,
		},
		CORS:          corsOptions(cfg.CORS),
		Connections:   connections,
		StaleReads:    cfg.Placement.StaleReads,
		ShutdownDelay: cfg.Server.ShutdownDelay,
		Placement: api.Options{
			IncompleteProjectID: cfg.Placement.IncompleteConsumerProjectID,
			IncompleteUserID:    cfg.Placement.IncompleteConsumerUserID,
			MaxCandidates:       cfg.Placement.MaxAllocationCandidates,
			DepthFirst:          cfg.Placement.AllocationCandidatesGenerationStrategy == config.DepthFirst,
			Randomize:           cfg.Placement.RandomizeAllocationCandidates,
			Extensions:          cfg.Placement.Extensions,
			Endpoint:            cfg.Placement.Endpoint,
			HostCapacityFactor:  cfg.Placement.HostCapacityFactor,
			HostAdmissionWindow: cfg.Placement.HostAdmissionWindow,
			HostClassRenames:    cfg.Placement.HostClassRenames,
		},
		Logger: log,
	}
}

func corsOptions(c config.CORS) api.CORS {
	age := time.Duration(c.MaxAge) * time.Second
	if age == 0 {
		age = -1 // omit the header
	}
	return api.CORS{
		AllowedOrigins: c.AllowedOrigin, AllowHeaders: c.AllowHeaders, AllowMethods: c.AllowMethods,
		ExposeHeaders: c.ExposeHeaders,
		MaxAge:        age, WithoutCredentials: !c.AllowCredentials,
	}
}

// ServePlacement serves Placement until ctx ends, on the socket that systemd passed or, without
// one, at an address. admin returns its admin socket and metrics.
//
// Errors: an [*AddressError]; [config.ErrInvalid]; [placement.ErrConfig]; those of the database and
// the socket.
func ServePlacement(
	ctx context.Context, cfg *config.Config, on Listening, sockets Sockets,
	admin func(*placement.Server) osapi.Admin, log zerolog.Logger,
) error {
	LimitMemory(serviceMemory, log)
	notify := notifier(log)
	listener, passed, err := PlacementListener(ctx, sockets, on.Address, log)
	if err != nil {
		return err
	}
	if passed {
		// Check its address like that of --listen.
		on.Address = ""
		if listener.Addr().Network() == "tcp" {
			on.Address = listener.Addr().String()
		}
	}
	defer func() { _ = listener.Close() }()
	audit, err := OpenAudit(cfg, false, log)
	if err != nil {
		return err
	}
	defer CloseAudit(audit, log)
	made := Placement(cfg, on, ProcessOf(cfg, log).Connections, log)
	if made.Denied, err = OpenDenyList(cfg.DenyList, log); err != nil {
		return err
	}
	if made.Tracing, err = agent.StartTracing(ctx, cfg, agent.TracedPlacement, log); err != nil {
		return err
	}
	defer made.Tracing.Close(ctx)
	made.Audit = audit
	made.Progress = starting(notify, log)
	server, err := placement.New(ctx, made)
	if err != nil {
		return err
	}
	defer func() { _ = server.Close() }()
	log.Info().Str("address", listener.Addr().String()).
		Str("auth", on.Auth).Str("version", version.Number()).Msg("Placement is serving.")
	service := served{
		what: "Placement", plain: cfg.PlacementTLS.CertFile == "", tls: "[placement_tls]",
		watched: admin(server), serve: made.Denied.KeepCurrent(server.Serve),
	}
	if err := service.run(ctx, listener, notify, log); err != nil {
		return err
	}
	log.Info().Msg("Placement has stopped. All acknowledged writes are on disk.")
	return nil
}
