// SPDX-License-Identifier: Apache-2.0

package cells

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"sync"
	"time"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/gather"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
)

const (
	// readyTime bounds a readiness check; readyFor is how long its result is reused.
	readyTime = 2 * time.Second
	readyFor  = time.Second
)

// readiness caches an answer for a moment, so that unauthenticated clients cannot cause a request
// to every cell each time.
type readiness struct {
	check func(context.Context) osapi.Readiness

	mu   sync.Mutex
	at   time.Time
	last osapi.Readiness
}

func (r *readiness) current(ctx context.Context) osapi.Readiness {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.at.IsZero() && time.Since(r.at) < readyFor {
		return r.last
	}
	// The result is shared, so that it does not end with the first client's request.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyTime)
	defer cancel()
	r.last, r.at = r.check(ctx), time.Now()
	return r.last
}

// APISocket is the name of the admin socket of a compute API.
const APISocket = "compute-api.sock"

// CellSocket is the name of the admin socket of a cell.
func CellSocket(cell string) string { return "cell-" + url.PathEscape(cell) + ".sock" }

// Admin is the admin socket of the API below a runtime directory, which has commands run, and its
// metrics at an address, "" for none.
func (a *API) Admin(runtimeDir, metrics string, commands http.Handler) osapi.Admin {
	return osapi.Admin{
		Service: "The compute API", Socket: filepath.Join(runtimeDir, APISocket), Offers: "metrics",
		Serve:          func(ctx context.Context, l *osapi.KeySocket) error { return a.ServeAdmin(ctx, l, commands) },
		MetricsAddress: metrics, Key: "compute_api.metrics_listen", ServeMetrics: a.ServeMetrics,
	}
}

// Admin is the admin socket of the cell below a runtime directory, and its metrics at an address,
// "" for none.
func (c *Cell) Admin(runtimeDir, metrics string) osapi.Admin {
	return osapi.Admin{
		Service: "Cell " + c.cfg.Name, Socket: filepath.Join(runtimeDir, CellSocket(c.cfg.Name)),
		Offers: "metrics", Serve: c.ServeAdmin,
		MetricsAddress: metrics, Key: "cell.metrics_listen", ServeMetrics: c.ServeMetrics,
	}
}

// ServeMetrics serves GET /metrics, /healthz and /readyz on the listener, without authentication,
// until the context ends. It closes the listener.
func (a *API) ServeMetrics(ctx context.Context, l net.Listener) error {
	return a.serveMetrics(ctx, l, nil)
}

// ServeAdmin answers what ServeMetrics does, GET [StatesPath] with how the cells are, GET /database
// with a backup, and the commands of others at sqldb.CommandPath. Backups and commands need the key
// of the socket.
func (a *API) ServeAdmin(ctx context.Context, l *osapi.KeySocket, commands http.Handler) error {
	a.store.AnswersAt(l.Addr().String())
	return a.serveMetrics(ctx, l, map[string]http.Handler{
		"POST " + sqldb.CommandPath: l.WithKey(commands),
		"GET " + sqldb.BackupPath:   l.WithKey(http.HandlerFunc(a.store.ServeBackup)),
		"GET " + StatesPath:         http.HandlerFunc(a.serveStates),
	})
}

func (a *API) serveMetrics(ctx context.Context, l net.Listener, more map[string]http.Handler) error {
	server := osapi.MetricsServer{Metrics: a.metrics.Handler(), Ready: a.ready.current, More: more,
		Connections: a.cfg.Connections, Logger: a.cfg.Logger}
	return server.Serve(ctx, l)
}

// checkReady reports whether the API is ready: its database answers and takes writes, and at least
// one cell that has hosts does. Each cell is asked, all at once.
func (a *API) checkReady(ctx context.Context) osapi.Readiness {
	cells, err := a.store.Cells(ctx)
	if err != nil {
		a.cfg.Logger.Warn().Err(err).Msg("The compute API is not ready: its database cannot be read. Follow the error.")
		return osapi.Readiness{Lines: []string{"not ready: the API database cannot be read"}}
	}
	if err := a.store.Problem(); err != nil {
		return osapi.Readiness{Lines: []string{"not ready: the API database cannot be written to: " +
			engine.Reason(err)}}
	}
	databases, err := a.store.CellDatabases(ctx) // before the cells are asked: revisions go on
	if err != nil {
		databases = nil // a line says less
	}
	answers := gather.AllUnlimited(ctx, a.gatherer, cells,
		func(ctx context.Context, c *cellclient.Client) (cellwire.CellInfo, error) { return c.Cell(ctx) })
	var found osapi.Readiness
	for _, c := range answers {
		line := c.Cell.Name + ": " + c.State.String()
		if c.State == gather.OK && c.Err == nil && c.Value.Revision > 0 &&
			!databases[c.Cell.UUID].Fits(apidb.CellMark{Epoch: c.Value.Epoch, Revision: c.Value.Revision}) {
			line += ", other database"
		}
		if c.Cell.Disabled {
			line += ", disabled"
		}
		found.Lines = append(found.Lines, line)
		found.Ready = found.Ready || c.State == gather.OK && !c.Cell.IsCell0()
	}
	switch {
	case found.Ready:
		found.Lines = append([]string{"ready"}, found.Lines...)
	case len(cells) == 0:
		found.Lines = []string{"not ready: no cell is known; run compute-agent cells manage create"}
	default:
		found.Lines = append([]string{"not ready: no cell that has hosts is up"}, found.Lines...)
	}
	return found
}

// ServeMetrics serves GET /metrics, /healthz and /readyz on the listener, without authentication,
// until the context ends. It closes the listener.
func (c *Cell) ServeMetrics(ctx context.Context, l net.Listener) error {
	return c.serveMetrics(ctx, l, nil)
}

// ServeAdmin answers what ServeMetrics does, and GET /database with a backup, which needs the key
// of the socket.
func (c *Cell) ServeAdmin(ctx context.Context, l *osapi.KeySocket) error {
	c.db.AnswersAt(l.Addr().String())
	return c.serveMetrics(ctx, l,
		map[string]http.Handler{"GET " + sqldb.BackupPath: l.WithKey(http.HandlerFunc(c.db.ServeBackup))})
}

func (c *Cell) serveMetrics(ctx context.Context, l net.Listener, more map[string]http.Handler) error {
	server := osapi.MetricsServer{Metrics: c.metrics.Handler(), Ready: c.ready.current, More: more,
		Connections: c.cfg.Connections, Logger: c.cfg.Logger}
	return server.Serve(ctx, l)
}

// checkReady reports whether the cell is ready: its database is whole, without which it refuses
// every request, and takes writes.
func (c *Cell) checkReady(ctx context.Context) osapi.Readiness {
	if err := c.handler.Check(ctx); err != nil {
		c.cfg.Logger.Warn().Err(err).Msg("The cell is not ready: its database cannot be read. Follow the error.")
		return osapi.Readiness{Lines: []string{"not ready: the database of " + c.cfg.Name + " cannot be read"}}
	}
	if err := c.db.Problem(); err != nil {
		return osapi.Readiness{Lines: []string{"not ready: the database of " +
			c.cfg.Name + " cannot be written to: " + engine.Reason(err)}}
	}
	return osapi.Readiness{Ready: true, Lines: []string{"ready", c.cfg.Name + ": up"}}
}
