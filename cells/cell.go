// SPDX-License-Identifier: Apache-2.0

package cells

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sync/errgroup"

	"github.com/compute-agent/compute-agent/cells/cell"
	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/cellwire"

	"github.com/compute-agent/compute-agent/internal/auditlog"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/internal/tracing"
)

// CellDatabase is the name of a cell's database in its state directory.
const CellDatabase = "cell.db"

// CellConfig configures the process of one cell. Name, Database and Auth are required.
type CellConfig struct {
	// Name is the cell's. Its database keeps it, and is refused under another one.
	Name string
	// Database is the address of its database, as engine.ParseAddress reads it.
	Database string
	Auth     cell.Auth
	// Denied is the deny list of hosts; nil: none.
	Denied *pki.DenyFile
	// MaxNodes bounds the nodes of a host that its certificate does not name, and ForgetNodes is
	// how long one is kept that its host does not report; 0: the standard.
	MaxNodes    int
	ForgetNodes time.Duration
	TLS         osapi.TLSFiles
	// Connections bounds the connections of all servers of the process, which share it; nil: the
	// cell has one of its own.
	Connections *osapi.Connections
	// ReportInterval is the interval of heartbeats, ServiceDownTime the time without one after
	// which a host is down.
	ReportInterval, ServiceDownTime time.Duration
	Version                         string
	// Audit receives who changed what. The cell does not close it. None when nil.
	Audit *auditlog.Log
	// Tracing makes spans of requests. The cell does not close it. Off when nil.
	Tracing *tracing.Tracing
	Logger  zerolog.Logger
	// Progress, if set, is called now and then while NewCell upgrades the database.
	Progress func()
}

// Cell is the process of one cell. Make one with NewCell, and Close it.
type Cell struct {
	store   celldb.Store // with metrics
	db      *celldb.DB
	handler *cell.Cell
	metrics *cellMetrics
	ready   readiness
	tls     *tls.Config
	cfg     CellConfig
}

// NewCell opens the database of a cell, and makes it when it is not there. Errors wrap [ErrConfig],
// or say what is wrong with the database.
func NewCell(ctx context.Context, cfg CellConfig) (*Cell, error) {
	config, err := cfg.TLS.Config(cfg.Logger, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	store, err := celldb.Open(ctx, cfg.Database, cfg.Name, celldb.Options{
		Logger: cfg.Logger, Progress: cfg.Progress, MaxNodes: cfg.MaxNodes, ForgetNodes: cfg.ForgetNodes,
	})
	if err != nil {
		return nil, err
	}
	if cfg.Connections == nil {
		cfg.Connections = osapi.NewConnections(osapi.ConnectionLimits{})
	}
	c := &Cell{metrics: newCellMetrics(nil), db: store, tls: config, cfg: cfg}
	c.store, c.ready.check = c.metrics.measuredStore(store), c.checkReady
	c.handler, err = cell.New(cell.Config{
		Name: cfg.Name, Store: c.store, Auth: cfg.Auth, Denied: cfg.Denied, ReportInterval: cfg.ReportInterval,
		ServiceDownTime: cfg.ServiceDownTime, Version: cfg.Version,
		Audit: cfg.Audit.ForService("cell " + cfg.Name), Observer: c.metrics, Tracing: cfg.Tracing, Logger: cfg.Logger,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", ErrConfig, err), store.Close())
	}
	if records := cfg.Audit.Collector(); records != nil {
		c.metrics.MustRegister(records)
	}
	c.metrics.WatchDenied(cfg.Denied)
	c.metrics.WatchCertificates(cfg.TLS.CertFile)
	c.metrics.Watch(cellMetricSources{
		Check:    c.handler.Check,
		Hosts:    c.Services,
		Writable: func() bool { return store.Problem() == nil },
		Servers:  store.CountStates, Nodes: store.CountNodes, Waiting: c.handler.Waiting,
	})
	return c, nil
}

// Services returns the services of all hosts.
func (c *Cell) Services(ctx context.Context) ([]cellwire.Service, error) {
	return c.db.Services(ctx, c.handler.Moment())
}

// Handler is the HTTP side.
func (c *Cell) Handler() http.Handler { return c.handler }

// Serve answers requests on the listener until the context ends. It closes the listener in any
// case.
func (c *Cell) Serve(ctx context.Context, l net.Listener) error {
	if err := c.cfg.Auth.CheckListen(l.Addr()); err != nil {
		return errors.Join(fmt.Errorf("%w: %w", ErrConfig, err), l.Close())
	}
	server := &osapi.Server{
		Handler: c.handler, TLS: c.tls, Connections: c.cfg.Connections, Refuse: c.handler.Refuse, Logger: c.cfg.Logger,
		ReadTimeout: requestTimeout, WriteTimeout: answerTimeout, Grace: stopGrace,
	}
	defer c.handler.CloseStreams()
	following, stop := context.WithCancel(ctx)
	var group errgroup.Group
	group.Go(func() error {
		c.handler.ForgetNodes(following)
		return nil
	})
	if c.db.Shared() {
		group.Go(func() error {
			c.handler.WatchChanges(following)
			return nil
		})
	}
	group.Go(func() error {
		defer stop()
		return server.Serve(ctx, l)
	})
	return group.Wait()
}

// Close closes the database. Stop serving first.
func (c *Cell) Close() error { return c.store.Close() }
