// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/render"
	"github.com/compute-agent/compute-agent/internal/agent"
	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/libvirtd"
	"github.com/compute-agent/compute-agent/placement"
)

// standaloneSections are what the services of a standalone process read, of which none is the
// enrolment service.
func standaloneSections() []string {
	all := config.SectionsOf(config.AgentService, config.PlacementService, config.ComputeAPIService, config.CellService)
	return slices.DeleteFunc(all, func(section string) bool { return section == "enrolment" })
}

// newStandalone runs Placement, the compute API, a cell and the agent in one process, and libvirt
// if no daemon runs.
func newStandalone() *cobra.Command {
	opts := options{uses: standaloneSections()}
	var listen, computeListen, pluginDir string
	var withoutCells bool
	cmd := &cobra.Command{
		Use: "standalone", Short: "Run the agent with its own Placement and compute API on this machine", Args: cobra.NoArgs,
		Long: "Run the agent with a Placement service, a Nova-compatible compute API and a cell, all on embedded databases: the quickest way\n" +
			"to see this machine's provider tree and to create a server on it. Without a configured driver it runs the libvirt driver, with\n" +
			"this machine's libvirt daemon or, if none answers, with a private one that stops with the agent.",
		RunE: withSockets(func(cmd *cobra.Command, sockets passedSockets) error {
			cfg, err := opts.load()
			if err != nil {
				return err
			}
			listener, _, err := placementListener(cmd.Context(), sockets, listen, newLogger(cfg, cmd.ErrOrStderr()))
			if err != nil {
				return err
			}
			defer func() { _ = listener.Close() }() // once more than the server does, or alone on an error
			scheme := "http://"
			if cfg.PlacementTLS.CertFile != "" {
				scheme = "https://"
			}
			opts.extra = []config.Override{{Key: "placement_client.url", Value: scheme + listener.Addr().String(), Flag: "--listen"}}
			if !withoutCells {
				opts.extra = append(opts.extra, config.Override{Key: "cell_client.url", Value: cellSocket(cfg, "cell1"), Flag: "standalone's own cell"})
			}
			if pluginDir != "" {
				dir, err := filepath.Abs(pluginDir)
				if err != nil {
					return fmt.Errorf("--plugin-dir: %w", err)
				}
				opts.extra = append(opts.extra, config.Override{Key: "plugins.dir", Value: dir, Flag: "--plugin-dir"})
			}
			compute := computeAddress(computeListen, listener.Addr())
			if withoutCells {
				compute = ""
			}
			return standalone(cmd.Context(), &opts, listener, compute, cmd.OutOrStdout(), cmd.ErrOrStderr())
		}),
	}
	opts.addConfigFlags(cmd)
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:8778", "`ADDRESS` of Placement")
	cmd.Flags().StringVar(&computeListen, "compute-listen", "", "`ADDRESS` of the compute API (default 127.0.0.1:8774 if Placement uses port 8778, else a random port)")
	cmd.Flags().BoolVar(&withoutCells, "without-cells", false, "run no compute API and no cell: the agent creates no guests")
	cmd.Flags().StringVar(&pluginDir, "plugin-dir", "", "`DIR` of the driver plugins (plugins.dir)")
	return cmd
}

// standalone runs all services; compute is the address of the compute API, "" for none.
func standalone(ctx context.Context, opts *options, listener net.Listener, compute string, stdout, stderr io.Writer) error {
	cfg, err := opts.load()
	if err != nil {
		return err
	}
	log := newLogger(cfg, stderr)
	if len(cfg.Drivers) == 0 {
		opts.extra = append(opts.extra, config.Override{Key: "drivers.libvirt.enabled", Value: "true", Flag: "standalone's default driver"})
		opts.guests = compute != ""
	}
	daemon, err := ensureLibvirt(ctx, cfg, opts, log)
	if err != nil {
		return err
	}
	kept := false // the goroutine below stops it
	defer func() {
		if daemon != nil && !kept {
			_ = daemon.Stop(context.WithoutCancel(ctx))
		}
	}()
	if cfg, err = opts.load(); err != nil {
		return err
	}

	flags := placementFlags{listen: listener.Addr().String(), auth: string(placement.NoAuth)}
	connections := connectionsOf(cfg)
	audit, err := openAudit(cfg, log)
	if err != nil {
		return err
	}
	defer closeAudit(audit, log)
	made := placementConfig(cfg, flags, connections, log.Level(zerolog.WarnLevel))
	made.Audit = audit
	if made.Tracing, err = agent.StartTracing(ctx, cfg, agent.TracedPlacement, log.Level(zerolog.WarnLevel)); err != nil {
		return err
	}
	defer made.Tracing.Close(ctx)
	server, err := placement.New(ctx, made)
	if err != nil {
		return err
	}
	defer func() { _ = server.Close() }()

	// Placement stops after the agent, so that the last pass can finish.
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	stopBeside, err := watchPlacement(cfg, server).Start(serving, log.Level(zerolog.WarnLevel))
	if err != nil {
		return err
	}
	defer stopBeside()
	var services *standaloneCompute
	if compute != "" {
		if services, err = newStandaloneCompute(ctx, cfg, compute, audit, connections, log.Level(zerolog.WarnLevel)); err != nil {
			return err
		}
		defer services.Close()
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return server.Serve(serving, listener) })
	if services != nil {
		group.Go(func() error { return services.Serve(serving) })
	}
	if daemon != nil {
		kept = true
		group.Go(func() error { return keepLibvirt(serving, daemon, privateLibvirt(cfg, log)) })
	}
	group.Go(func() error {
		defer stopServing()
		return runAgent(ctx, cfg, agent.Options{
			Load: opts.load, Configuration: opts.configuration, Logger: log, Bundled: true,
			OnReady: func(ctx context.Context, a *agent.Agent) {
				showTree(ctx, a, cfg, stdout)
				_, _ = fmt.Fprint(stdout, "The agent keeps Placement up to date. Ctrl-C stops everything except guests.\n\n")
				if services != nil {
					group.Go(func() error {
						if services.awaitHost(ctx) == nil {
							showCompute(stdout, services.URL())
						}
						return nil
					})
				}
			},
		})
	})
	return group.Wait()
}

// ensureLibvirt finds the libvirt daemon for the libvirt driver, or starts a private one, and sets
// the driver's uri. A configured uri is kept.
func ensureLibvirt(ctx context.Context, cfg *config.Config, opts *options, log zerolog.Logger) (*libvirtd.Daemon, error) {
	d := cfg.Drivers["libvirt"]
	switch {
	case d == nil && len(cfg.Drivers) > 0, d != nil && !d.Enabled:
		return nil, nil
	case d != nil && d.Config["uri"] != nil:
		return nil, nil
	}
	uri, found, why := libvirtd.Find(ctx)
	var daemon *libvirtd.Daemon
	if found {
		log.Info().Str("uri", uri).Msg("Using the libvirt daemon of this machine.")
	} else {
		log.Info().Str("reason", why).Msg("No libvirt daemon answers on this machine; starting a private one, which stops with the agent.")
		var err error
		daemon, err = libvirtd.StartPrivate(ctx, privateLibvirt(cfg, log))
		if err != nil {
			return nil, err
		}
		uri = daemon.URI()
	}
	opts.adjust = func(cfg *config.Config) {
		d := cfg.Drivers["libvirt"]
		if d == nil || d.Config["uri"] != nil {
			return
		}
		if d.Config == nil {
			d.Config = map[string]any{}
		}
		d.Config["uri"] = uri
		if opts.guests || daemon != nil && d.Config["instances"] != nil { // guests of a private daemon need their own directory
			manageGuests(cfg, daemon != nil)
		}
	}
	return daemon, nil
}

// privateLibvirt returns the directories of a private daemon.
func privateLibvirt(cfg *config.Config, log zerolog.Logger) libvirtd.Options {
	return libvirtd.Options{Dir: filepath.Join(cfg.Agent.StateDir, "libvirt"), RuntimeDir: filepath.Join(cfg.Agent.RuntimeDir, "libvirt"), Logger: log}
}

// restartPause is the time between two attempts to restart a private daemon.
const restartPause = 5 * time.Second

// keepLibvirt restarts the private daemon if it exits, at the same socket, and stops it with ctx.
// While it is down, the driver is not ready, and Placement is not changed.
func keepLibvirt(ctx context.Context, daemon *libvirtd.Daemon, opts libvirtd.Options) error {
	for {
		select {
		case <-ctx.Done():
			return daemon.Stop(context.WithoutCancel(ctx))
		case <-daemon.Done():
		}
		_ = daemon.Stop(context.WithoutCancel(ctx)) // clean up; its end is in the log
		for next := (*libvirtd.Daemon)(nil); next == nil; daemon = next {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(restartPause):
			}
			var err error
			if next, err = libvirtd.StartPrivate(ctx, opts); err != nil {
				opts.Logger.Error().Err(err).Msg("Cannot restart the private libvirt daemon; retrying.")
			}
		}
		opts.Logger.Info().Str("uri", daemon.URI()).Msg("Restarted the private libvirt daemon.")
	}
}

// showTree prints the provider tree and commands to inspect it.
func showTree(ctx context.Context, a *agent.Agent, cfg *config.Config, w io.Writer) {
	tree, err := a.Tree(ctx, control.TreeOptions{})
	if err != nil {
		_, _ = fmt.Fprintf(w, "\nNothing is reported yet: %v\nSee the log above; the agent retries.\n", err)
		return
	}
	_, _ = fmt.Fprintf(w, "\nThis machine in Placement:\n\n")
	_ = render.Tree(screen(w), tree, render.TreeOptions{Now: time.Now()})
	url := cfg.PlacementClient.URL
	_, _ = fmt.Fprintf(w, `
Placement listens at %[1]s. To inspect it:
  %[3]s tree --runtime-dir %[2]s
  curl -H 'X-Auth-Token: admin' -H 'OpenStack-API-Version: placement latest' %[1]s/resource_providers
  openstack --os-auth-type admin_token --os-endpoint %[1]s --os-token admin resource provider list

`, url, cfg.Agent.RuntimeDir, os.Args[0])
}
