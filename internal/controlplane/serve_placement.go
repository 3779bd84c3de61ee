// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/agent"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/internal/version"
	"github.com/compute-agent/compute-agent/placement"
)

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
