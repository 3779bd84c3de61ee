// SPDX-License-Identifier: Apache-2.0

package cells

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log" //nolint:depguard // http.Server.ErrorLog takes no other logger; what it gets goes to zerolog.
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/seldom"
	"github.com/compute-agent/compute-agent/internal/serve"
)

// ErrConfig is wrapped by all errors about a configuration that cannot work.
var ErrConfig = errors.New("invalid configuration of cells")

// How long a request may take to arrive, an answer to be made and sent beside the time that its handler may wait for others, an idle connection may
// stay, and requests under way may take to end when the service stops.
const (
	headerTimeout  = 10 * time.Second
	requestTimeout = 60 * time.Second
	answerTimeout  = 150 * time.Second
	idleTimeout    = 120 * time.Second
	stopGrace      = 5 * time.Second
	maxHeaderBytes = 128 << 10
)

// Listen opens HOST:PORT, or unix:///PATH: a socket that only its owner may use. A socket that a process left behind is replaced; one
// that somebody answers on is not.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	var lc net.ListenConfig
	path, unix := strings.CutPrefix(address, "unix://")
	if !unix {
		return lc.Listen(ctx, "tcp", address)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("the directory of the socket: %w", err)
	}
	if err := removeStale(ctx, path); err != nil {
		return nil, err
	}
	lc.Control = ownersOnly
	return lc.Listen(ctx, "unix", path)
}

// ownersOnly gives a unix socket its mode before it has a name: nobody else can connect in between.
func ownersOnly(_, _ string, c syscall.RawConn) error {
	var err error
	if failed := c.Control(func(fd uintptr) { err = syscall.Fchmod(int(fd), 0o600) }); failed != nil {
		return failed
	}
	return err
}

// removeStale removes a socket that nobody answers on.
func removeStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s is there and is no socket: it is left alone; choose another path, or remove it", path)
	}
	var d net.Dialer
	if c, err := d.DialContext(ctx, "unix", path); err == nil {
		_ = c.Close()
		return fmt.Errorf("another process answers at %s: stop it first, or choose another path", path)
	}
	return os.Remove(path)
}

// serveHTTP answers requests until the context ends; it closes the listener in any case. longest is how long a handler may wait for others.
func serveHTTP(ctx context.Context, l net.Listener, handler http.Handler, config *tls.Config, longest time.Duration, logger zerolog.Logger) error {
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       requestTimeout,
		WriteTimeout:      longest + answerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          log.New(connectionLog{logger, seldom.New(time.Minute, time.Now)}, "", 0),
	}
	if config != nil {
		l = tls.NewListener(l, config)
	}
	return serve.Until(ctx, server, l, stopGrace)
}

// connectionLog takes the lines that net/http logs, which are about single connections.
type connectionLog struct {
	log  zerolog.Logger
	told *seldom.Seldom // addresses whose handshakes failed
}

// handshakeFailed is how net/http begins a line about a handshake.
const handshakeFailed = "http: TLS handshake error from "

func (c connectionLog) Write(line []byte) (int, error) {
	text := strings.TrimSpace(string(line))
	// One that ends without a word is a probe of a balancer, and no client that is to be let in.
	if about, is := strings.CutPrefix(text, handshakeFailed); is && !strings.HasSuffix(text, ": EOF") {
		from, why, _ := strings.Cut(about, ": ")
		if host, _, err := net.SplitHostPort(from); err == nil {
			from = host
		}
		if c.told.Now(from) {
			c.log.Warn().Str("address", from).Str("why", why).
				Str("remedy", "compare the certificate and the certificate authority of the client with those here; a client whose URL begins with http:// is to say https://").
				Msg("A client and this process could not agree on TLS, so it is not served. That it tries again is told of once a minute.")
			return len(line), nil
		}
	}
	c.log.Debug().Str("connection", text).Msg("A connection went wrong; others are not affected.")
	return len(line), nil
}
