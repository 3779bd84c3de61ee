// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"path/filepath"
	"time"

	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/internal/version"
)

// adminGrace is how long an administrator's requests may take to end when the service stops. There
// is no bound to an answer: a profile is taken as long as one likes.
const adminGrace = 2 * time.Second

// Status is what GET /status of the admin socket answers.
type Status struct {
	Version  string    `json:"version"`
	PID      int       `json:"pid"`
	Started  time.Time `json:"started"`
	Uptime   int64     `json:"uptime_seconds"`
	Database string    `json:"database"`
	// DatabaseProblem is why writes fail now, empty when nothing is known that keeps them from
	// succeeding.
	DatabaseProblem string `json:"database_problem,omitempty"`
	// SnapshotVersion grows by one with each commit, of whichever server of the database.
	SnapshotVersion   int64 `json:"snapshot_version"`
	ResourceProviders int   `json:"resource_providers"`
	Consumers         int   `json:"consumers"`
	// ConsumersMissing is how many consumers of allocations have no record; see `placement db
	// online-data-migrations`.
	ConsumersMissing int   `json:"consumers_missing"`
	RequestsInFlight int64 `json:"requests_in_flight"`
	WritesWaiting    int   `json:"writes_waiting"`
}

// Status returns the status of the service, without reading the database.
func (s *Server) Status() Status {
	now, snapshot := time.Now(), s.ledger.Current()
	status := Status{
		Version: version.Number(), PID: os.Getpid(),
		Started: s.started, Uptime: int64(now.Sub(s.started) / time.Second),
		Database: s.database, SnapshotVersion: snapshot.Version(), ResourceProviders: snapshot.ProviderCount(),
		Consumers: snapshot.ConsumerCount(), ConsumersMissing: snapshot.MissingConsumers(),
		RequestsInFlight: s.api.Load().Requests, WritesWaiting: s.ledger.Waiting(),
	}
	if err := s.store.Problem(); err != nil {
		status.DatabaseProblem = err.Error()
	}
	return status
}

// AdminSocket is the name of the admin socket of Placement.
const AdminSocket = "placement-admin.sock"

// Admin is the admin socket of the service below a runtime directory, which has commands run, and
// its metrics at an address, "" for none.
func (s *Server) Admin(runtimeDir, metrics string, commands http.Handler) osapi.Admin {
	return osapi.Admin{
		Service: "Placement", Socket: filepath.Join(runtimeDir, AdminSocket), Offers: "status, metrics and profiles",
		Serve:          func(ctx context.Context, l *osapi.KeySocket) error { return s.ServeAdmin(ctx, l, commands) },
		MetricsAddress: metrics, Key: "placement_metrics.listen", ServeMetrics: s.ServeMetrics,
	}
}

// ServeAdmin answers /status, /database (a backup), /metrics, /healthz, /readyz and /debug/pprof on
// the socket until the context ends, and the commands of others at sqldb.CommandPath. Commands,
// backups and profiles need its key.
func (s *Server) ServeAdmin(ctx context.Context, l *osapi.KeySocket, commands http.Handler) error {
	s.store.AnswersAt(l.Addr().String())
	mux := s.metricsMux()
	mux.Handle("POST "+sqldb.CommandPath, l.WithKey(commands))
	mux.Handle("GET "+sqldb.BackupPath, l.WithKey(http.HandlerFunc(s.store.ServeBackup)))
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		_ = enc.Encode(s.Status()) // a client that went away is no concern of the service's
	})
	for pattern, profile := range map[string]http.HandlerFunc{
		"/debug/pprof/": pprof.Index, "GET /debug/pprof/cmdline": pprof.Cmdline,
		"GET /debug/pprof/profile": pprof.Profile,
		"/debug/pprof/symbol":      pprof.Symbol, "GET /debug/pprof/trace": pprof.Trace,
	} {
		mux.Handle(pattern, l.WithKey(profile))
	}
	return s.serveAside(ctx, l, mux)
}

// ServeMetrics answers /metrics, /healthz and /readyz on the listener until the context ends. It
// does not authenticate clients.
func (s *Server) ServeMetrics(ctx context.Context, l net.Listener) error {
	return s.serveAside(ctx, l, s.metricsMux())
}

func (s *Server) metricsMux() *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", s.metrics.Handler())
	mux.Handle("GET /healthz", s.api)
	mux.Handle("GET /readyz", s.api)
	return mux
}

// serveAside serves what is not the API until the context ends.
func (s *Server) serveAside(ctx context.Context, l net.Listener, handler http.Handler) error {
	server := &osapi.Server{Handler: handler, Connections: s.connections, Grace: adminGrace, Logger: s.log}
	// A profile under way ends with the service.
	if err := server.Serve(ctx, l); err != nil {
		return fmt.Errorf("serve on %s: %w", l.Addr(), err)
	}
	return nil
}
