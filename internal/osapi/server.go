// SPDX-License-Identifier: Apache-2.0

package osapi

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log" //nolint:depguard // http.Server.ErrorLog takes no other logger; what it gets goes to zerolog.
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
)

// Bounds that hold for all servers.
const (
	// headerTimeout is how long the headers of a request may take to arrive.
	headerTimeout = 10 * time.Second
	// idleTimeout is how long a connection may wait for the next request.
	idleTimeout = 120 * time.Second
	// maxHeaderBytes bounds the headers of a request with its request line. Handlers bound the
	// query in it.
	maxHeaderBytes = 80 << 10
)

// Server is an HTTP server for clients on a network. Handler is required.
type Server struct {
	Handler http.Handler
	// TLS is nil for plain HTTP.
	TLS *tls.Config
	// ReadTimeout is how long a whole request may take to arrive, WriteTimeout how long it may take
	// from its headers to the end of its answer. 0 is no bound.
	ReadTimeout, WriteTimeout time.Duration
	// Grace is how long requests in progress have to end when the server stops. Their contexts end
	// at once, unless Finish is set.
	Grace  time.Duration
	Finish bool
	// Delay is how long the server goes on after the context has ended, so that load balancers see
	// that it is about to stop and send requests elsewhere. Answers then close their connections.
	Delay time.Duration
	// Stopping is called when the context ends; nil does nothing.
	Stopping func()
	// Connections is the set of all servers of the process; nil makes one for this server.
	Connections *Connections
	// Refuse answers a request that does not reach the handler, with a status and the reason.
	Refuse func(w http.ResponseWriter, r *http.Request, status int, reason string)
	Logger zerolog.Logger

	stopping atomic.Bool
}

// Serve answers requests on the listener until the context ends, and the delay is over, and returns
// nil then. It closes the listener in any case.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	conns := s.Connections
	if conns == nil {
		conns = NewConnections(ConnectionLimits{})
	}
	server := &http.Server{
		Handler:           http.HandlerFunc(s.handle),
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       s.ReadTimeout,
		WriteTimeout:      s.WriteTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          log.New(connectionLog{s.Logger}, "", 0),
		ConnState: func(c net.Conn, to http.ConnState) {
			switch to {
			case http.StateActive: // the handler comes next
				countedOf(c).changeState(waiting)
			case http.StateIdle:
				countedOf(c).changeState(idle)
			}
		},
		// Each request that framing counts is one that the handler gets.
		DisableGeneralOptionsHandler: true,
	}
	ctx, cancel := s.delayed(ctx)
	defer cancel()
	requests := ctx
	if s.Finish {
		requests = context.WithoutCancel(ctx)
	}
	return serveUntil(ctx, requests, server, listen(ctx, l, s.TLS, conns, s.Logger), s.Grace)
}

// delayed is a context that ends after another one did, by the delay.
func (s *Server) delayed(ctx context.Context) (later context.Context, cancel context.CancelFunc) {
	later, end := context.WithCancel(context.WithoutCancel(ctx))
	unhook := context.AfterFunc(ctx, func() {
		s.stopping.Store(true)
		if s.Stopping != nil {
			s.Stopping()
		}
		if s.Delay > 0 {
			select {
			case <-later.Done(): // the listener failed
			case <-time.After(s.Delay):
			}
		}
		end()
	})
	return later, func() { unhook(); end() }
}

// countedOf is the counted connection below one that net/http has.
func countedOf(c net.Conn) *conn {
	switch c := c.(type) {
	case *watched:
		return c.counted
	case watchedTLS:
		return c.counted
	case *tls.Conn: // HTTP/2
		return c.NetConn().(*conn)
	}
	panic(fmt.Sprintf("osapi: a connection of type %T", c)) // the listener makes these only
}

func (s *Server) handle(w http.ResponseWriter, r *http.Request) {
	c := r.Context().Value(connKey{}).(net.Conn)
	countedOf(c).changeState(active)
	if client := countedOf(c).clientOf(r.Header); client != "" {
		r.RemoteAddr = client // whom logs, audit records and bounds are about
	}
	var http1 *watched
	switch c := c.(type) {
	case *watched:
		http1 = c
	case watchedTLS:
		http1 = c.watched
	}
	if http1 != nil {
		http1.served++
		switch http1.verdictOf(http1.served) {
		case ambiguous:
			w.Header().Set("Connection", "close")
			s.refuse(w, r, http.StatusBadRequest,
				"The request has both Content-Length and Transfer-Encoding. Send one of them.")
			return
		case last:
			w.Header().Set("Connection", "close")
		}
	}
	if s.stopping.Load() {
		// idle connections are closed at the end: a client may be about to use one
		w.Header().Set("Connection", "close")
	}
	s.Handler.ServeHTTP(w, r)
}

func (s *Server) refuse(w http.ResponseWriter, r *http.Request, status int, reason string) {
	if s.Refuse == nil {
		http.Error(w, reason, status)
		return
	}
	s.Refuse(w, r, status, reason)
}

// connectionLog receives the log lines of net/http, which are about single connections.
type connectionLog struct{ log zerolog.Logger }

func (c connectionLog) Write(line []byte) (int, error) {
	c.log.Debug().Str("connection", strings.TrimSpace(string(line))).
		Msg("A connection failed. Others are not affected.")
	return len(line), nil
}

// serveUntil answers requests on the listener until ctx ends, and returns nil then. Requests under
// way have the grace to end; their context is requests. The first request of a connection that was
// accepted before the end is answered. The error of a listener that fails is returned as it is.
func serveUntil(ctx, requests context.Context, server *http.Server, l net.Listener, grace time.Duration) error {
	server.BaseContext = func(net.Listener) context.Context { return requests }
	first := newDrain(server)
	l = &closedOnce{Listener: l, close: sync.OnceValue(l.Close)}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	select {
	case err := <-served:
		return errors.Join(err, server.Close()) // the listener failed
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	err := l.Close()
	if e := <-served; !errors.Is(e, net.ErrClosed) {
		err = errors.Join(err, e)
	}
	first.wait(end)
	if server.Shutdown(end) != nil {
		_ = server.Close() // what is left is cut
	}
	return err
}

// closedOnce is a listener that net/http may close again.
type closedOnce struct {
	net.Listener
	close func() error
}

// Close implements net.Listener.
func (c *closedOnce) Close() error { return c.close() }
