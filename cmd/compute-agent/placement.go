// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/placement/api"
	"github.com/compute-agent/compute-agent/placement/keystone"
	"github.com/compute-agent/compute-agent/systemd"
)

func newPlacement() *cobra.Command {
	cmd := &cobra.Command{
		Use: "placement", Short: "Serve the OpenStack Placement API", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newPlacementServe(), newPlacementDB(), newPlacementExplain())
	return cmd
}

// placementFlags are those of a Placement service.
type placementFlags struct {
	listen, database, auth, tokenFile string
}

func newPlacementServe() *cobra.Command {
	var opts options
	var flags placementFlags
	var metricsListen string
	cmd := &cobra.Command{
		Use: "serve", Short: "Serve the Placement API from a database", Args: cobra.NoArgs,
		Long: "Serve the Placement API. The state is kept in placement.db below the state directory, or in the database given.\n" +
			"Under systemd, a socket unit's socket named \"placement\" is used instead of --listen.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if metricsListen != "" {
				opts.extra = append(opts.extra, config.Override{Key: "placement_metrics.listen", Value: metricsListen, Flag: "--metrics-listen"})
			}
			cfg, err := opts.load()
			if err != nil {
				return err
			}
			return servePlacement(cmd.Context(), cfg, flags, newLogger(cfg, cmd.ErrOrStderr()))
		},
	}
	opts.addConfigFlags(cmd)
	cmd.Flags().StringVar(&metricsListen, "metrics-listen", "", "`ADDRESS` to serve metrics on as well, :PORT for loopback (placement_metrics.listen)")
	cmd.Flags().StringVar(&flags.listen, "listen", "127.0.0.1:8778", "`ADDRESS` to listen on")
	cmd.Flags().StringVar(&flags.database, "database", "", "`DSN` of the database, such as sqlite:///var/lib/placement/placement.db (default: placement.db in the state directory)")
	cmd.Flags().StringVar(&flags.auth, "auth", "noauth", "how requests are authenticated: noauth (loopback only), token or keystone ([keystone] in the configuration)")
	cmd.Flags().StringVar(&flags.tokenFile, "token-file", "", "`FILE` of the tokens, for --auth token")
	return cmd
}

func servePlacement(ctx context.Context, cfg *config.Config, flags placementFlags, log zerolog.Logger) error {
	notify, err := systemd.New()
	if err != nil {
		log.Warn().Err(err).Msg("What systemd passed in the environment makes no sense: it will not be told how the service is.")
	}
	listener, err := placementListener(ctx, flags.listen)
	if err != nil {
		return err
	}
	server, err := placement.New(ctx, placementConfig(cfg, flags, log))
	if err != nil {
		_ = listener.Close()
		return err
	}
	defer func() { _ = server.Close() }()
	stopBeside, err := serveBeside(ctx, cfg, server, log)
	if err != nil {
		_ = listener.Close()
		return err
	}
	defer stopBeside()
	address := listener.Addr().String()
	log.Info().Str("address", address).Str("auth", flags.auth).Msg("Placement serves.")
	tell(log, notify.Ready("serving Placement on "+address))
	defer context.AfterFunc(ctx, func() { tell(log, notify.Stopping("finishing the requests under way")) })()
	if err := server.Serve(ctx, listener); err != nil {
		return err
	}
	log.Info().Msg("Placement has stopped: the requests under way were finished.")
	return nil
}

// placementListener takes the socket that systemd passed, or opens one.
func placementListener(ctx context.Context, address string) (net.Listener, error) {
	passed, err := systemd.Listeners()
	if err != nil {
		return nil, err
	}
	if sockets := passed[systemd.PlacementSocket]; len(sockets) > 0 {
		for _, more := range sockets[1:] {
			_ = more.Close()
		}
		return sockets[0], nil
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("cannot serve Placement on %s: %w; is another Placement running there? Choose another address with --listen", address, err)
	}
	return l, nil
}

func placementConfig(cfg *config.Config, flags placementFlags, log zerolog.Logger) placement.Config {
	return placement.Config{
		StateDir: filepath.Clean(cfg.Agent.StateDir), Database: flags.database, Listen: flags.listen,
		Auth:       placement.Auth{Strategy: placement.Strategy(flags.auth), TokenFile: flags.tokenFile, Keystone: keystoneConfig(cfg.Keystone)},
		Policy:     api.Defaults(cfg.Policy.Defaults),
		PolicyFile: cfg.Policy.File,
		TLS:        placement.TLS{CertFile: cfg.PlacementTLS.CertFile, KeyFile: cfg.PlacementTLS.KeyFile, ClientCAFile: cfg.PlacementTLS.ClientCAFile},
		CORS:       corsOptions(cfg.CORS),
		Placement: api.Options{
			IncompleteProjectID: cfg.Placement.IncompleteConsumerProjectID,
			IncompleteUserID:    cfg.Placement.IncompleteConsumerUserID,
			MaxCandidates:       cfg.Placement.MaxAllocationCandidates,
			DepthFirst:          cfg.Placement.AllocationCandidatesGenerationStrategy == config.DepthFirst,
			Randomize:           cfg.Placement.RandomizeAllocationCandidates,
		},
		Logger: log,
	}
}

func corsOptions(c config.CORS) api.CORS {
	age := time.Duration(c.MaxAge) * time.Second
	if age == 0 {
		age = -1 // Say nothing about it.
	}
	return api.CORS{
		AllowedOrigins: c.AllowedOrigin, AllowHeaders: c.AllowHeaders, AllowMethods: c.AllowMethods, ExposeHeaders: c.ExposeHeaders,
		MaxAge: age, WithoutCredentials: !c.AllowCredentials,
	}
}

// keystoneConfig says who asks Keystone. The file of the secret is read at each login.
func keystoneConfig(k config.Keystone) keystone.Config {
	c := keystone.Config{
		AuthURL: k.AuthURL, ApplicationCredentialID: k.ApplicationCredentialID,
		Username: k.Username, UserDomainName: k.UserDomainName, ProjectName: k.ProjectName, ProjectDomainName: k.ProjectDomainName,
		CAFile: k.CAFile, WWWAuthenticateURI: k.WWWAuthenticateURI, Timeout: k.Timeout, TokenCacheTime: k.TokenCacheTime,
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

// tell logs what systemd could not be told; the service goes on.
func tell(log zerolog.Logger, err error) {
	if err != nil {
		log.Warn().Err(err).Msg("systemd could not be told how the service is.")
	}
}
