// SPDX-License-Identifier: Apache-2.0

package osapi

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/lib/wait"
)

const (
	// handshakeTime is how long a TLS handshake may take.
	handshakeTime = 10 * time.Second
	// retryLeast and retryMost bound the pause after a failed accept.
	retryLeast, retryMost = 5 * time.Millisecond, time.Second
)

// listener gives net/http connections that are counted and followed. It shakes hands itself, since
// net/http speaks HTTP/1 over TLS only with connections that nothing is put in between.
type listener struct {
	net.Listener
	tls      *tls.Config // nil for none
	conns    *Connections
	log      zerolog.Logger
	logLimit *LogLimiter

	ready  chan net.Conn
	failed chan error // of Accept
	ctx    context.Context
	stop   context.CancelFunc
	ended  chan struct{} // closed when nothing is accepted any more
	// accepts is the goroutine that accepts, handshakes are those under way.
	accepts, handshakes sync.WaitGroup
}

func listen(ctx context.Context, l net.Listener, config *tls.Config, conns *Connections, log zerolog.Logger) *listener {
	ln := &listener{
		Listener: l, tls: config, conns: conns, log: log, logLimit: NewLogLimiter(time.Minute, time.Now),
		ready: make(chan net.Conn), failed: make(chan error, 1), ended: make(chan struct{}),
	}
	ln.ctx, ln.stop = context.WithCancel(context.WithoutCancel(ctx))
	ln.accepts.Go(ln.run)
	return ln
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.ready:
		return c, nil
	case err := <-l.failed:
		l.failed <- err // for the next call
		return nil, err
	}
}

// Close stops accepting. What was accepted before goes to net/http yet, if it shakes hands within a
// second.
func (l *listener) Close() error {
	err := l.Listener.Close()
	select {
	case <-l.ended:
	case <-time.After(2 * firstRequest): // nothing takes connections any more
	}
	l.stop()
	l.accepts.Wait()
	l.handshakes.Wait()
	return err
}

// finish waits for the handshakes that are under way, and ends those that take long.
func (l *listener) finish() {
	over := time.AfterFunc(firstRequest, l.stop)
	defer over.Stop()
	l.handshakes.Wait()
}

// run accepts until the listener is closed.
func (l *listener) run() {
	defer close(l.ended)
	pause := retryLeast
	for {
		raw, err := l.Listener.Accept()
		switch {
		case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.ECONNABORTED):
			if !errors.Is(err, syscall.ECONNABORTED) {
				l.conns.evict()
				if l.logLimit.Allow("descriptors") {
					l.log.Error().
						Err(err).
						Msg("Cannot accept a connection: the process has reached its limit of open files. " +
							"Connections without a request are closed; raise LimitNOFILE in the unit.")
				}
			}
			wait.For(l.ctx, pause)
			pause = min(2*pause, retryMost)
			continue
		case err != nil:
			l.finish()
			l.failed <- err
			return
		}
		pause = retryLeast
		c := l.conns.admit(raw)
		if c == nil {
			from := host(raw)
			if l.logLimit.Allow("refused " + from) {
				limits := l.conns.Limits()
				l.log.Warn().Str("address", from).Int("max_connections", limits.Total).
					Int("max_connections_per_address", limits.PerAddress).
					Msg("Refused a connection: the limit of connections is reached, and each of them has a request " +
						"in progress.")
			}
			continue
		}
		if l.tls == nil {
			l.deliver(&watched{Conn: c, counted: c})
			continue
		}
		l.handshakes.Go(func() { l.handshake(c) })
	}
}

// deliver hands a connection to net/http.
func (l *listener) deliver(c net.Conn) {
	select {
	case l.ready <- c:
	case <-l.ctx.Done():
		_ = c.Close() // the server has stopped
	}
}

// notTLS answers a client that speaks HTTP where TLS is expected, as net/http does.
const notTLS = "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"

func (l *listener) handshake(c *conn) {
	ctx, cancel := context.WithTimeout(l.ctx, handshakeTime)
	defer cancel()
	secured := tls.Server(c, l.tls)
	if err := secured.HandshakeContext(ctx); err != nil {
		var header tls.RecordHeaderError
		if errors.As(err, &header) && header.Conn != nil && speaksHTTP(header.RecordHeader) {
			_, _ = io.WriteString(header.Conn, notTLS) // it is a courtesy
		}
		_ = c.Close() // the error above is the one that matters
		// One that ends without a word is a probe of a load balancer.
		if from := host(c); !errors.Is(err, io.EOF) && l.ctx.Err() == nil && l.logLimit.Allow("handshake "+from) {
			l.log.Warn().Str("address", from).Str("why", err.Error()).
				Str("hint",
					"compare the certificate and the certificate authority of the client with those here; a client "+
						"whose URL begins with http:// needs https://").
				Msg("A TLS handshake failed. Further failures of this address are logged once a minute.")
		}
		return
	}
	if secured.ConnectionState().NegotiatedProtocol == "h2" { // it has no Transfer-Encoding
		l.deliver(secured)
		return
	}
	l.deliver(watchedTLS{&watched{Conn: secured, counted: c}, secured})
}

func speaksHTTP(header [5]byte) bool {
	switch string(header[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "OPTIO", "DELET", "PATCH":
		return true
	}
	return false
}

// host is the address of a client without its port.
func host(c net.Conn) string {
	text := c.RemoteAddr().String()
	if h, _, err := net.SplitHostPort(text); err == nil {
		return h
	}
	return text
}
