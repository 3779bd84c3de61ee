// SPDX-License-Identifier: Apache-2.0

package osapi

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"
)

// Admin is what a service serves beside its API: an admin socket and metrics.
type Admin struct {
	Service string // for messages: "Placement", "Cell cell1"
	// Socket is the path of the admin socket, and Serve serves on it; Offers describes what.
	Socket, Offers string
	Serve          func(context.Context, *KeySocket) error
	// MetricsAddress is an additional address for metrics, "" for none; Key is its configuration
	// key.
	MetricsAddress, Key string
	ServeMetrics        func(context.Context, net.Listener) error
}

// Start serves the admin socket and, if configured, metrics at an address, until ctx ends or stop
// is called; stop waits. Failure to create the admin socket is logged only, because clients of the
// service do not need it. Failure to listen on a configured address is an error.
func (a Admin) Start(ctx context.Context, log zerolog.Logger) (stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	stop = func() { cancel(); group.Wait() }
	serve := func(what string, l net.Listener, on func() error) {
		log.Info().Str("address", l.Addr().String()).Msg(a.Service + ": serving the " + what + ".")
		group.Go(func() {
			if err := on(); err != nil {
				log.Error().Err(err).Msg(a.Service + ": the " + what +
					" has failed. Requests are still served; restart the service to restore it.")
			}
		})
	}
	if a.MetricsAddress != "" {
		l, err := Listen(ctx, onLoopback(a.MetricsAddress))
		if err != nil {
			stop()
			return nil, fmt.Errorf("%s: %w; choose another address, or none", a.Key, err)
		}
		serve("metrics page", l, func() error { return a.ServeMetrics(ctx, l) })
	}
	l, err := ListenWithKey(ctx, a.Socket)
	if err != nil {
		log.Warn().
			Err(err).
			Str("socket", a.Socket).
			Msg(a.Service + " has no admin socket: its " +
				a.Offers +
				" are not available there, and commands on its database require that it is stopped. Give each " +
				"service its own writable runtime directory (--runtime-dir).")
		return stop, nil
	}
	serve("admin socket", l, func() error { return a.Serve(ctx, l) })
	return stop, nil
}

// onLoopback returns the address, on loopback if it has no host.
func onLoopback(address string) string {
	if host, port, err := net.SplitHostPort(address); err == nil && host == "" {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return address
}

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
