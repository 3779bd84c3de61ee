// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells"
	"github.com/compute-agent/compute-agent/internal/agent"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
	"github.com/compute-agent/compute-agent/internal/version"
)

// ServeCell serves one cell, as [cell] has it, until ctx ends.
//
// Errors: [config.ErrInvalid]; those of the database and the socket.
func ServeCell(ctx context.Context, cfg *config.Config, name string, log zerolog.Logger) error {
	LimitMemory(serviceMemory, log)
	notify := notifier(log)
	log = log.With().Str("cell", name).Logger()
	made, err := Cell(cfg, name, CellDatabase(cfg), ProcessOf(cfg, log), log)
	if err != nil {
		return err
	}
	if made.Denied, err = OpenDenyList(cfg.DenyList, log); err != nil {
		return err
	}
	address, err := engine.ParseAddress(made.Database)
	if err != nil {
		return fmt.Errorf("%w: cell.database: %w", config.ErrInvalid, err)
	}
	_, err = os.Stat(address.Path)
	created := !address.Shared() && errors.Is(err, fs.ErrNotExist)
	audit, err := OpenAudit(cfg, false, log)
	if err != nil {
		return err
	}
	defer CloseAudit(audit, log)
	if made.Tracing, err = agent.StartTracing(ctx, cfg, agent.TracedCell, log); err != nil {
		return err
	}
	defer made.Tracing.Close(ctx)
	made.Audit = audit
	made.Progress = starting(notify, log)
	process, err := cells.NewCell(ctx, made) // before Listen: the lock of a file also protects the socket
	if err != nil {
		return err
	}
	defer func() { _ = process.Close() }()
	listen := osapi.Listen
	if cfg.Cell.Auth == config.AuthPeer {
		listen = osapi.ListenPeers
	}
	l, err := listen(ctx, cfg.Cell.Listen)
	if err != nil {
		return fmt.Errorf("cannot serve the cell on %s: %w; choose another address with --listen", cfg.Cell.Listen, err)
	}
	if created {
		log.Warn().Stringer("database", address).
			Msg("Created a new, empty cell database. If the cell had servers before, stop it and restore its database.")
	}
	log.Info().Str("address", l.Addr().String()).Str("auth", cfg.Cell.Auth).Stringer("database", address).
		Str("version", version.Number()).Msg("The cell is serving.")
	service := served{
		what: "cell " + name, plain: cfg.Cell.CertFile == "", tls: "cert_file and key_file",
		watched: process.Admin(cfg.Agent.RuntimeDir, cfg.Cell.MetricsListen),
		serve:   made.Denied.KeepCurrent(process.Serve),
	}
	if err := service.run(ctx, l, notify, log); err != nil {
		return err
	}
	log.Info().Msg("The cell has stopped. Guests are not affected.")
	return nil
}
