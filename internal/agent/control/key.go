// SPDX-License-Identifier: Apache-2.0

package control

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/files"
	"github.com/compute-agent/compute-agent/internal/osapi"
)

// bearer precedes the key in the header Authorization.
const bearer = "Bearer "

// KeyPath is the path of the key that requests on a control socket come with. It is made with the
// socket, and for the same users. The sandbox of drivers, which may connect to sockets, closes it
// with the rest of the runtime directory.
func KeyPath(socket string) string { return strings.TrimSuffix(socket, ".sock") + ".key" }

// Authorize adds the key of a control socket to a request. Without a key no agent runs there, or
// one of a version that needs none.
//
// Errors: [fs.ErrPermission] for other users than the agent's and root.
func Authorize(r *http.Request, socket string) error {
	key, err := os.ReadFile(KeyPath(socket))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("the key of the agent's socket: %w", err)
	}
	r.Header.Set("Authorization", bearer+strings.TrimSpace(string(key)))
	return nil
}

// Socket is the control socket of an agent, with its key.
type Socket struct {
	net.Listener
	path, key string
	close     func() error
}

// Open creates the socket as [Listen] does, and its key.
func Open(ctx context.Context, path string) (*Socket, error) {
	l, err := Listen(ctx, path)
	if err != nil {
		return nil, err
	}
	s := &Socket{Listener: l, path: path, key: rand.Text()}
	s.close = sync.OnceValue(func() error {
		_ = os.Remove(KeyPath(path)) // without the socket it opens nothing
		return l.Close()
	})
	if err := files.Replace(KeyPath(path), []byte(s.key+"\n")); err != nil {
		return nil, fmt.Errorf("the key of the control socket: %w", errors.Join(err, l.Close()))
	}
	return s, nil
}

// Close removes the socket and its key.
func (s *Socket) Close() error { return s.close() }

// Serve serves requests until ctx ends, and then closes the socket.
func (s *Socket) Serve(ctx context.Context, agent Agent, log zerolog.Logger) error {
	g := &guard{socket: s, next: handler(agent), log: log, often: osapi.NewLogLimiter(time.Minute, time.Now)}
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
	socket  *Socket
	drivers DriverSource // nil for none
	next    http.Handler
	log     zerolog.Logger
	often   *osapi.LogLimiter
}

func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	pid, driver, err := g.check(r)
	if err == nil {
		g.next.ServeHTTP(w, r)
		return
	}
	if g.often.Allow(driver) {
		g.log.Warn().Str("driver", driver).Int("pid", pid).Str("method", r.Method).Str("path", r.URL.Path).Err(err).
			Msg("Refused a request on the control socket. If it is a driver's, find out why: drivers have no reason to send any. Logged at most once a minute for each driver.")
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
		return pid, driver, fmt.Errorf("process %d belongs to the driver %s: drivers send no requests on the control socket", pid, driver)
	}
	key, found := strings.CutPrefix(r.Header.Get("Authorization"), bearer)
	switch {
	case !found:
		return pid, "", fmt.Errorf("the request has no key: send the content of %s, as the header Authorization: Bearer KEY", KeyPath(g.socket.path))
	case subtle.ConstantTimeCompare([]byte(key), []byte(g.socket.key)) != 1:
		return pid, "", fmt.Errorf(
			"the key of the request is not the one in %s: the agent was started again meanwhile, or another agent uses its runtime directory; repeat the command",
			KeyPath(g.socket.path),
		)
	}
	return pid, "", nil
}
