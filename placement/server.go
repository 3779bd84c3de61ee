// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/auditlog"
	"github.com/compute-agent/compute-agent/internal/keystone"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
	"github.com/compute-agent/compute-agent/placement/api"
	"github.com/compute-agent/compute-agent/placement/store"
	"github.com/compute-agent/compute-agent/placement/transactor"
)

// How long a request may take to arrive, and an answer to be taken (counted from the request's
// headers).
const (
	requestTimeout = 60 * time.Second
	answerTimeout  = 120 * time.Second
	defaultGrace   = 10 * time.Second
)

// Server is a Placement service. Make one with New, and Close it.
type Server struct {
	ledger  *transactor.Ledger
	store   *store.Store
	api     *api.API
	metrics *metrics // nil for none
	auth    Auth
	tls     *tls.Config // nil for plain HTTP
	grace   time.Duration
	delay   time.Duration
	// stopping: the context of Serve has ended.
	stopping *atomic.Bool
	// connections are the connections of all servers of the process, which share a limit.
	connections *osapi.Connections
	audit       *auditlog.Log
	log         zerolog.Logger

	started  time.Time
	database string // for people
	options  api.Options
}

// AuditService is the name of Placement in records.
const AuditService = "placement"

// Audit is the log that records its changes; nil for none.
func (s *Server) Audit() *auditlog.Log {
	if s == nil {
		return nil
	}
	return s.audit
}

// New opens the database of a Placement service, loads its state and puts the service together. The
// context bounds the opening only. An error about the configuration wraps ErrConfig.
func New(ctx context.Context, cfg Config) (*Server, error) {
	return assemble(ctx, cfg, newMetrics())
}

// assemble is New with metrics, or without any.
func assemble(ctx context.Context, cfg Config, m *metrics) (*Server, error) {
	authenticator, err := cfg.Auth.authenticator(cfg.Logger, cfg.Now)
	if err != nil {
		return nil, err
	}
	tlsConfig, err := cfg.TLS.Config(cfg.Logger, cfg.Now)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if cfg.Listen != "" {
		if err := cfg.Auth.checkListen(cfg.Listen); err != nil {
			return nil, err
		}
	}
	policy, err := cfg.policy()
	if err != nil {
		return nil, err
	}
	if keystoneAuth, ok := authenticator.(*keystone.Authenticator); ok {
		if err := keystoneAuth.Check(ctx); err != nil {
			cfg.Logger.Error().Err(err).
				Msg("Keystone is not available, so tokens cannot be validated. Requests are answered with 503 until " +
					"it is; each request tries again.")
		}
	}
	withHosts, err := cfg.hosts(authenticator)
	if err != nil {
		return nil, err
	}
	name, err := cfg.DatabaseName()
	if err != nil {
		return nil, err
	}
	l, opened, err := openLedger(ctx, name, &cfg, m)
	if err != nil {
		return nil, err
	}
	if cfg.Connections == nil {
		cfg.Connections = osapi.NewConnections(osapi.ConnectionLimits{})
	}
	if cfg.ShutdownGrace <= 0 {
		cfg.ShutdownGrace = defaultGrace
	}
	stopping := new(atomic.Bool)
	calls := api.Config{
		Ledger:        l,
		Authenticator: withHosts,
		Policy:        policy,
		CORS:          cfg.CORS,
		Options:       cfg.Placement,
		Limits:        cfg.Limits,
		Audit:         cfg.Audit.ForService(AuditService),
		Tracing:       cfg.Tracing,
		Logger:        cfg.Logger,
		Now:           cfg.Now,
		Problem:       opened.Problem,
		Stopping:      stopping.Load,
	}
	if m != nil {
		calls.Observer = m
	}
	s := &Server{
		ledger:      l,
		store:       opened,
		api:         api.New(calls),
		metrics:     m,
		auth:        cfg.Auth,
		tls:         tlsConfig,
		grace:       cfg.ShutdownGrace,
		delay:       cfg.ShutdownDelay,
		stopping:    stopping,
		connections: cfg.Connections,
		audit:       cfg.Audit,
		log:         cfg.Logger,
		started:     time.Now(),
		database:    engine.Shown(name),
		options:     cfg.Placement,
	}
	if m != nil {
		m.watch(l, s.api, opened.Problem)
		m.WatchDenied(cfg.Denied)
		m.WatchCertificates(cfg.TLS.CertFile)
		if records := cfg.Audit.Collector(); records != nil {
			m.MustRegister(records)
		}
	}
	return s, nil
}

// openLedger opens a database by its name. The ledger closes its store.
func openLedger(ctx context.Context, name string, cfg *Config, m *metrics) (*transactor.Ledger, *store.Store, error) {
	opened, err := store.Open(ctx, name,
		store.Options{Logger: cfg.Logger, Exclusive: cfg.Exclusive, Progress: cfg.Progress})
	if err != nil {
		return nil, nil, fmt.Errorf("open the Placement database %s: %w", engine.Shown(name), err)
	}
	opts := transactor.Options{Now: cfg.Now, StaleReads: cfg.StaleReads}
	if m != nil {
		opts.Observer = m
	}
	l, err := transactor.Open(ctx, opened, opts)
	if err != nil {
		return nil, nil,
			errors.Join(fmt.Errorf("load the Placement database %s: %w", engine.Shown(name), err), opened.Close())
	}
	return l, opened, nil
}

// Handler is the HTTP side of the service.
func (s *Server) Handler() http.Handler { return s.api }

// Serve answers requests on the listener until the context ends. Then /readyz answers 503, for
// Config.ShutdownDelay everything else goes on, and after that it takes no new connections,
// lets the requests under way end for at most Config.ShutdownGrace, and returns nil. It closes the
// listener in any case. The service stays open: a handler can serve on several listeners, and Close
// ends it.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	if err := s.auth.checkListener(l); err != nil {
		return errors.Join(err, l.Close())
	}
	s.log.Info().Stringer("address", l.Addr()).Bool("tls", s.tls != nil).Str("database", s.database).
		Msg("Serving the Placement API.")
	server := &osapi.Server{
		Handler: s.api, TLS: s.tls, Connections: s.connections, Refuse: s.api.Refuse, Logger: s.log,
		ReadTimeout: requestTimeout, WriteTimeout: answerTimeout, Grace: s.grace, Finish: true, Delay: s.delay,
		Stopping: func() {
			s.stopping.Store(true)
			if s.delay > 0 {
				s.log.Info().Dur("delay", s.delay).
					Msg("Stopping: /readyz answers 503 now, and requests are still answered.")
			} else {
				s.log.Info().Dur("at_most", s.grace).
					Msg("Stopping: no new connections are taken, and the requests under way are finished.")
			}
		},
	}
	if err := server.Serve(ctx, l); err != nil {
		return fmt.Errorf("serve Placement on %s: %w", l.Addr(), err)
	}
	s.log.Info().Stringer("address", l.Addr()).Msg("Stopped serving the Placement API.")
	return nil
}

// Close ends the service: writes under way are finished, and its database is closed. Stop serving
// first.
func (s *Server) Close() error {
	if err := s.ledger.Close(); err != nil {
		return fmt.Errorf("close the Placement database: %w", err)
	}
	return nil
}
