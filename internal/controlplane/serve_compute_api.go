// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"net"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/compute-agent/compute-agent/cells"
	"github.com/compute-agent/compute-agent/cells/enrolment"
	"github.com/compute-agent/compute-agent/internal/agent"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/files"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/internal/version"
)

// ServeComputeAPI serves the compute API, as [compute_api] has it, and enrolment beside it if that
// is configured, until ctx ends. admin returns its admin socket and metrics.
//
// Errors: [config.ErrInvalid]; [cells.ErrConfig]; those of the database and the sockets.
func ServeComputeAPI(
	ctx context.Context, cfg *config.Config, admin func(*cells.API) osapi.Admin, log zerolog.Logger,
) error {
	LimitMemory(serviceMemory, log)
	notify := notifier(log)
	made, err := computeAPI(ctx, cfg, ProcessOf(cfg, log), log)
	if err != nil {
		return err
	}
	if cfg.DenyList.URL != "" {
		return fmt.Errorf(
			"%w: deny_list.url is for Placement and cells: the compute API serves the list, from deny_list.file and "+
				"the hosts that were evicted", config.ErrInvalid)
	}
	if made.Denied, err = OpenDenyList(cfg.DenyList, log); err != nil {
		return err
	}
	l, err := osapi.Listen(ctx, cfg.ComputeAPI.Listen)
	if err != nil {
		return fmt.Errorf("cannot serve the compute API on %s: %w; choose another address with --listen",
			cfg.ComputeAPI.Listen, err)
	}
	defer func() { _ = l.Close() }() // once more than the service does, or alone on an error
	audit, err := OpenAudit(cfg, false, log)
	if err != nil {
		return err
	}
	defer CloseAudit(audit, log)
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
		watched: admin(api), serve: api.Serve,
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

// withEnrolment returns what serves a compute API, with the enrolment service beside it if one is
// configured. If one of them fails, both end.
func withEnrolment(
	ctx context.Context, cfg *config.Config, api *cells.API, made cells.APIConfig, log zerolog.Logger,
) (func(context.Context, net.Listener) error, error) {
	c := cfg.Enrolment
	if c.Listen == "" {
		return api.Serve, nil
	}
	authority, err := pki.OpenAuthority(c.CADirectory())
	if err != nil {
		return nil, fmt.Errorf("%w: enrolment.ca_dir: %w", config.ErrInvalid, err)
	}
	place := enrolment.PlacementPlace{URL: c.PlacementURL}
	if c.PlacementCAFile != "" {
		ca, err := files.Read(c.PlacementCAFile)
		if err != nil {
			return nil, fmt.Errorf("%w: enrolment.placement_ca_file: %w", config.ErrInvalid, err)
		}
		place.CA = string(ca.Data)
	}
	names, err := c.ServiceNames()
	if err != nil {
		return nil, err
	}
	service, err := enrolment.New(enrolment.Config{
		Store: api.Store(), Authority: authority, Names: names, Lifetime: c.CertificateLifetime,
		RenewalGrace: c.RenewalGrace, Placement: place,
		Denied: made.Denied, Audit: made.Audit.ForService(cells.AuditService), Tracing: made.Tracing,
		Connections: made.Connections, Observer: api.EnrolmentObserver(), Logger: log,
	})
	if err != nil {
		return nil, fmt.Errorf("%w: [enrolment]: %w", config.ErrInvalid, err)
	}
	l, err := osapi.Listen(ctx, c.Listen)
	if err != nil {
		return nil, fmt.Errorf("cannot serve enrolment on %s: %w; choose another address in enrolment.listen",
			c.Listen, err)
	}
	log.Info().Str("address", l.Addr().String()).Str("ca", authority.Fingerprint()).Strs("names", names).
		Msg("Enrolment is served: hosts can join with a token.")
	return func(ctx context.Context, to net.Listener) error {
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() error { return api.Serve(ctx, to) })
		group.Go(func() error { return service.Serve(ctx, l) })
		return group.Wait()
	}, nil
}
