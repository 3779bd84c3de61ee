// SPDX-License-Identifier: Apache-2.0

package osapi

import (
	"context"
	"errors"
	"io"
	"log" //nolint:depguard // http.Server.ErrorLog takes no other logger; what it gets is dropped.
	"net"
	"net/http"
	"syscall"

	"golang.org/x/sys/unix"
)

// errNoneWaits is what Accept of a queue returns when no connection waits.
var errNoneWaits = errors.New("no connection waits")

// TurnAway answers the requests that wait on a listener with 503 and a reason, and closes the
// listener: for a service that cannot serve on a socket that stays open without it. It accepts only
// what waits, and gives each connection a second to send its request. Connections that begin with a
// TLS handshake are closed without an answer.
func TurnAway(ctx context.Context, l net.Listener, reason string) {
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "1")
			http.Error(w, reason, http.StatusServiceUnavailable)
		}),
		ReadHeaderTimeout: firstRequest, ReadTimeout: firstRequest, WriteTimeout: firstRequest,
		MaxHeaderBytes: maxHeaderBytes,
		ErrorLog:       log.New(io.Discard, "", 0),
	}
	server.SetKeepAlivesEnabled(false)
	first := newDrain(server)
	_ = server.Serve(&queue{l, longestQueue}) // it is done when none waits
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*firstRequest)
	defer cancel()
	first.wait(ctx)
	if server.Shutdown(ctx) != nil {
		_ = server.Close() // what is left is cut
	}
}

// longestQueue is how many connections wait at most, by the kernel's default.
const longestQueue = 4096

// queue is a listener for the connections that wait, and none after these.
type queue struct {
	net.Listener
	left int
}

// Accept implements [net.Listener]. It does not block.
func (q *queue) Accept() (net.Conn, error) {
	of, ok := q.Listener.(syscall.Conn)
	if !ok || q.left == 0 {
		return nil, errNoneWaits
	}
	q.left--
	raw, err := of.SyscallConn()
	if err != nil {
		return nil, err
	}
	n := 0
	if failed := raw.Control(func(fd uintptr) {
		n, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	}); failed != nil || err != nil {
		return nil, errors.Join(failed, err)
	}
	if n == 0 {
		return nil, errNoneWaits
	}
	c, err := q.Listener.Accept()
	if err != nil { // a server tries again for long where the process has no descriptors left
		return nil, errors.Join(errNoneWaits, err)
	}
	return &plainConn{Conn: c}, nil
}

// recordOfHandshake is the first byte of a TLS connection.
const recordOfHandshake = 22

// plainConn is a connection that ends for its reader if it begins with a TLS handshake.
type plainConn struct {
	net.Conn
	begun bool
}

// Read implements [net.Conn].
func (p *plainConn) Read(b []byte) (int, error) {
	n, err := p.Conn.Read(b)
	if n > 0 && !p.begun {
		p.begun = true
		if b[0] == recordOfHandshake {
			return 0, io.EOF
		}
	}
	return n, err
}
