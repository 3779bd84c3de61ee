// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/osapi"
)

// Socket is the control socket of an agent, with its key.
type Socket struct{ *osapi.KeySocket }

// Open creates the socket and its key. It replaces the socket of a dead agent, but not one that
// another process serves.
func Open(ctx context.Context, path string) (*Socket, error) {
	l, err := osapi.ListenWithKey(ctx, path)
	switch {
	case errors.Is(err, osapi.ErrInUse):
		return nil, fmt.Errorf(
			"control socket %s: another agent answers there; stop it first, or give this one its own "+
				"agent.runtime_dir and agent.state_dir", path)
	case err != nil:
		return nil, fmt.Errorf("control socket: %w", err)
	}
	return &Socket{l}, nil
}

// Serve serves requests until ctx ends, and then closes the socket.
func (s *Socket) Serve(ctx context.Context, agent Agent, log zerolog.Logger) error {
	g := &guard{socket: s, next: handler(agent), log: log, logLimit: osapi.NewLogLimiter(time.Minute, time.Now)}
	g.drivers, _ = agent.(DriverSource)
	mux := http.NewServeMux()
	mux.Handle("/", g)
	if source, ok := agent.(MetricsSource); ok {
		page := (&osapi.MetricsServer{Metrics: source.Metrics(), Ready: source.Readiness}).Handler()
		for _, path := range []string{"/metrics", "/healthz", "/readyz"} {
			mux.Handle(path, page)
		}
	}
	// Requests that are still running when the agent stops are dropped.
	server := &osapi.Server{Handler: mux, Grace: 2 * time.Second, Logger: log}
	if err := server.Serve(ctx, s); err != nil {
		return fmt.Errorf("control socket: %w", err)
	}
	return nil
}

// guard refuses requests of drivers: those that a driver's process or a descendant of it sends, and
// those without the key, as a process of a driver that was orphaned sends them.
type guard struct {
	socket   *Socket
	drivers  DriverSource // nil for none
	next     http.Handler
	log      zerolog.Logger
	logLimit *osapi.LogLimiter
}

func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	pid, driver, err := g.check(r)
	if err == nil {
		g.next.ServeHTTP(w, r)
		return
	}
	if g.logLimit.Allow(driver) {
		g.log.Warn().Str("driver", driver).Int("pid", pid).Str("method", r.Method).Str("path", r.URL.Path).Err(err).
			Msg("Refused a request on the control socket. If it is a driver's, find out why: drivers have no reason " +
				"to send any. Logged at most once a minute for each driver.")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusForbidden)
	encode(w, failure{Error: err.Error()})
}

// check returns why a request is refused, with the process that sent it, 0 if it is not known, and
// the driver that this process belongs to, "" for none.
func (g *guard) check(r *http.Request) (pid int, driver string, err error) {
	peer, err := osapi.Peer(r)
	if err != nil {
		return 0, "", err
	}
	pid = int(peer.Pid)
	if g.drivers != nil {
		driver = g.drivers.DriverOf(pid)
	}
	if driver != "" {
		return pid, driver,
			fmt.Errorf("process %d belongs to the driver %s: drivers send no requests on the control socket",
				pid, driver)
	}
	return pid, "", g.socket.CheckKey(r)
}
