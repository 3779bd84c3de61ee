// SPDX-License-Identifier: Apache-2.0

package osapi

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/rs/zerolog"
)

// Readiness is whether a process can do its work, with a line for each thing that it needs.
type Readiness struct {
	Ready bool
	Lines []string
}

// MetricsServer answers GET /metrics, /healthz and /readyz, to any client.
type MetricsServer struct {
	Metrics http.Handler
	Ready   func(context.Context) Readiness
	// More is what else it answers, by pattern of http.ServeMux.
	More map[string]http.Handler
	// Connections is the set of all servers of the process; nil makes one for this server.
	Connections *Connections
	Logger      zerolog.Logger
}

// Handler answers the requests.
func (m *MetricsServer) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", m.Metrics)
	mux.HandleFunc("GET /healthz",
		func(w http.ResponseWriter, _ *http.Request) { writeLines(w, http.StatusOK, "alive") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		status, now := http.StatusServiceUnavailable, m.Ready(r.Context())
		if now.Ready {
			status = http.StatusOK
		}
		writeLines(w, status, now.Lines...)
	})
	for pattern, handler := range m.More {
		mux.Handle(pattern, handler)
	}
	return mux
}

// Serve answers requests on the listener until the context ends. It closes the listener.
func (m *MetricsServer) Serve(ctx context.Context, l net.Listener) error {
	server := &Server{
		Handler: m.Handler(), Connections: m.Connections, Logger: m.Logger,
		ReadTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second, Grace: 2 * time.Second,
	}
	if err := server.Serve(ctx, l); err != nil {
		return fmt.Errorf("serve on %s: %w", l.Addr(), err)
	}
	return nil
}

func writeLines(w http.ResponseWriter, status int, lines ...string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = fmt.Fprintln(w, strings.Join(lines, "\n")) // a client that went away needs nothing
}
