// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"net"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/compute-agent/compute-agent/cells"
	"github.com/compute-agent/compute-agent/internal/agent"
	"github.com/compute-agent/compute-agent/internal/auditlog"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/placement"
)

// StandaloneOptions say what runs in a standalone process, and how.
type StandaloneOptions struct {
	// Config is the configuration after [Libvirt.Configure].
	Config  *config.Config
	Process Process
	// Audit is closed by the caller.
	Audit *auditlog.Log
	// Placement is what the service is made with, but for tracing; it serves on PlacementListener.
	Placement         placement.Config
	PlacementListener net.Listener
	// Compute is the address of the compute API; "" runs none, and no cell.
	Compute string
	// PlacementAdmin and ComputeAdmin are the admin sockets and metrics of the services.
	PlacementAdmin func(*placement.Server) osapi.Admin
	ComputeAdmin   func(*cells.API) osapi.Admin
	// Libvirt may be nil.
	Libvirt *Libvirt
	// RunAgent runs the agent until ctx ends, and calls ready when the agent is.
	RunAgent func(ctx context.Context, ready func(context.Context)) error
	// ComputeReady is called with the URL of the compute API when its host can take a server.
	ComputeReady func(url string)
	Logger       zerolog.Logger
}

// RunStandalone runs all services and the agent until ctx ends or one of them fails. Only warnings
// and errors of the services are logged. Placement stops after the agent, so that the last pass can
// finish, and a private libvirt daemon with it.
func RunStandalone(ctx context.Context, o StandaloneOptions) error {
	log := o.Logger.Level(zerolog.WarnLevel)
	var err error
	if o.Placement.Tracing, err = agent.StartTracing(ctx, o.Config, agent.TracedPlacement, log); err != nil {
		return err
	}
	defer o.Placement.Tracing.Close(ctx)
	server, err := placement.New(ctx, o.Placement)
	if err != nil {
		return err
	}
	defer func() { _ = server.Close() }()

	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	stopAdmin, err := o.PlacementAdmin(server).Start(serving, log)
	if err != nil {
		return err
	}
	defer stopAdmin()
	var services *standaloneServices
	if o.Compute != "" {
		if services, err = newStandaloneServices(ctx, o, log); err != nil {
			return err
		}
		defer services.Close()
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return server.Serve(serving, o.PlacementListener) })
	if services != nil {
		group.Go(func() error { return services.Serve(serving) })
	}
	if o.Libvirt != nil && o.Libvirt.private != nil {
		o.Libvirt.kept = true
		group.Go(func() error { return o.Libvirt.keep(serving) })
	}
	group.Go(func() error {
		defer stopServing()
		return o.RunAgent(ctx, func(ctx context.Context) {
			if services == nil {
				return
			}
			group.Go(func() error {
				if services.awaitHost(ctx) == nil {
					o.ComputeReady(services.URL())
				}
				return nil
			})
		})
	})
	return group.Wait()
}
