// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"syscall"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/internal/agent"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/keystone"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/internal/version"
	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/placement/api"
	"github.com/compute-agent/compute-agent/systemd"
)

func newPlacement() *cobra.Command {
	return group("placement", "Serve the OpenStack Placement API", newPlacementServe(), newPlacementDB(),
		newPlacementAdopt(), newPlacementExplain(), newPlacementMigrate())
}

// placementFlags are the flags of a Placement service.
type placementFlags struct {
	listen, auth, tokenFile string
}

func newPlacementServe() *cobra.Command {
	opts := options{uses: config.SectionsOf(config.PlacementService)}
	var flags placementFlags
	var metricsListen, database string
	cmd := &cobra.Command{
		Use: "serve", Short: "Serve the Placement API from a database", Args: cobra.NoArgs,
		Long: "Serve the Placement API. The state is in placement.db " +
			"below the state directory, or in the given database.\n" +
			"Under systemd, the socket named \"placement\" of a socket unit is used instead of --listen.",
		RunE: withSockets(func(cmd *cobra.Command, sockets passedSockets) error {
			if metricsListen != "" {
				opts.extra = append(opts.extra,
					config.Override{Key: "placement_metrics.listen", Value: metricsListen, Flag: "--metrics-listen"})
			}
			opts.setDatabase(database)
			cfg, err := opts.load()
			if err != nil {
				return err
			}
			return servePlacement(cmd.Context(), cfg, flags, sockets, newLogger(cfg, cmd.ErrOrStderr()))
		}),
	}
	opts.addConfigFlags(cmd)
	cmd.Flags().StringVar(&metricsListen, "metrics-listen",
		"", "additional `ADDRESS` for metrics, :PORT for loopback (placement_metrics.listen)")
	cmd.Flags().StringVar(&flags.listen, "listen", "127.0.0.1:8778", "`ADDRESS` to listen on")
	addDatabaseFlag(cmd, &database)
	cmd.Flags().StringVar(&flags.auth, "auth", "noauth",
		"`METHOD` of authentication: noauth (loopback only), token or keystone ([keystone] in the configuration)")
	cmd.Flags().StringVar(&flags.tokenFile, "token-file", "", "`FILE` of the tokens, for --auth token")
	return cmd
}

func servePlacement(
	ctx context.Context, cfg *config.Config, flags placementFlags, sockets passedSockets, log zerolog.Logger,
) error {
	limitMemory(serviceMemory, log)
	notify := notifier(log)
	listener, passed, err := placementListener(ctx, sockets, flags.listen, log)
	if err != nil {
		return err
	}
	if passed {
		// Check its address like that of --listen.
		flags.listen = ""
		if listener.Addr().Network() == "tcp" {
			flags.listen = listener.Addr().String()
		}
	}
	defer func() { _ = listener.Close() }()
	audit, err := openAudit(cfg, log)
	if err != nil {
		return err
	}
	defer closeAudit(audit, log)
	made := placementConfig(cfg, flags, connectionsOf(cfg), log)
	if made.Denied, err = openDenyList(cfg.DenyList, log); err != nil {
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
		Str("auth", flags.auth).Str("version", version.Number()).Msg("Placement is serving.")
	service := served{
		what: "Placement", plain: cfg.PlacementTLS.CertFile == "", tls: "[placement_tls]",
		watched: watchPlacement(cfg, server), serve: besideDenyList(made.Denied, server.Serve),
	}
	if err := service.run(ctx, listener, notify, log); err != nil {
		return err
	}
	log.Info().Msg("Placement has stopped. All acknowledged writes are on disk.")
	return nil
}

// passedSockets are the sockets that systemd passed to this process, by name.
type passedSockets map[string][]net.Listener

// withSockets makes the run of a command of a service that gets the sockets that systemd passed. If
// the service cannot start, and systemd is to start it again, the requests that wait on Placement's
// socket are answered: the socket stays open, and their clients would wait for as long as the
// service cannot start. For other failures systemd closes the socket.
func withSockets(run func(*cobra.Command, passedSockets) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		sockets, err := systemd.Listeners()
		if err != nil {
			return err
		}
		var again []net.Listener // as the service closes its own
		defer func() { systemd.CloseAll(again) }()
		for _, l := range sockets[systemd.PlacementSocket] {
			second, err := systemd.Duplicate(l)
			if err != nil {
				return fmt.Errorf("the socket that systemd passed: %w", err)
			}
			again = append(again, second)
		}
		if err = run(cmd, sockets); err != nil && exitCode(err) == exitFailed && cmd.Context().Err() == nil {
			for _, l := range again {
				osapi.TurnAway(cmd.Context(), l, "Placement cannot start. Its log says why. It is started again.")
			}
		}
		return err
	}
}

// placementListener returns the socket that systemd passed, or opens one.
func placementListener(
	ctx context.Context, sockets passedSockets, address string, log zerolog.Logger,
) (l net.Listener, passed bool, err error) {
	ours := sockets[systemd.PlacementSocket]
	delete(sockets, systemd.PlacementSocket)
	for name, others := range sockets {
		log.Warn().Str("socket", name).Str("address", others[0].Addr().String()).
			Msg("systemd passed a socket that is not used. A socket for Placement needs FileDescriptorName=" +
				systemd.PlacementSocket + " in its unit.")
		systemd.CloseAll(others)
	}
	if len(ours) > 0 {
		if len(ours) > 1 {
			log.Warn().Str("address", ours[0].Addr().String()).Int("sockets", len(ours)).
				Msg("systemd passed several sockets; Placement serves only on the first. Keep one ListenStream= " +
					"in the unit.")
		}
		systemd.CloseAll(ours[1:])
		return ours[0], true, nil
	}
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = net.DefaultResolver.LookupPort(ctx, "tcp", port)
	}
	if err != nil {
		return nil, false,
			&exitError{exitUsage,
				fmt.Errorf("cannot serve Placement on %s: %w; --listen takes HOST:PORT, such as 127.0.0.1:8778",
					address, err)}
	}
	l, err = (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, false,
			fmt.Errorf("cannot serve Placement on %s: %w; is another Placement running there? Choose another "+
				"address with --listen", address, err)
	}
	if err != nil {
		return nil, false, fmt.Errorf("cannot serve Placement on %s: %w; choose another address with --listen",
			address, err)
	}
	return l, false, nil
}

// connectionsOf returns the connection limits of all servers of a process.
func connectionsOf(cfg *config.Config) *osapi.Connections {
	limits := osapi.ConnectionLimits{Total: cfg.Server.MaxConnections, PerAddress: cfg.Server.MaxConnectionsPerAddress}
	return osapi.NewConnections(limits, cfg.Server.Proxies()...)
}

// placementConfig converts the configuration. connections are those of the process, nil if it does
// not serve clients.
func placementConfig(
	cfg *config.Config, flags placementFlags, connections *osapi.Connections, log zerolog.Logger,
) placement.Config {
	return placement.Config{
		StateDir: filepath.Clean(cfg.Agent.StateDir), Database: cfg.Placement.Database, Listen: flags.listen,
		Auth: placement.Auth{Strategy: placement.Strategy(flags.auth), TokenFile: flags.tokenFile,
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

// keystoneConfig converts [keystone]. The secret's file is read at each login.
func keystoneConfig(k config.Keystone, log zerolog.Logger) keystone.AuthenticatorConfig {
	c := keystone.AuthenticatorConfig{
		Config: keystone.Config{
			Section: "keystone", AuthURL: k.AuthURL,
			ApplicationCredentialID: k.ApplicationCredentialID, Timeout: k.Timeout,
			Username: k.Username, UserDomainName: k.UserDomainName, ProjectName: k.ProjectName,
			ProjectDomainName: k.ProjectDomainName, Logger: log,
		},
		CAFile: k.CAFile, WWWAuthenticateURI: k.WWWAuthenticateURI, TokenCacheTime: k.TokenCacheTime,
	}
	file := k.PasswordFile
	if k.ApplicationCredentialID != "" {
		file = k.ApplicationCredentialSecretFile
	}
	if file != "" {
		c.Secret = func() (string, error) {
			secret, err := config.ReadSecret(file)
			return secret.Reveal(), err
		}
	}
	return c
}
