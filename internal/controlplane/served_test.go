// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bytes"
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// at is a listener with an address, of which nothing is accepted.
type at struct {
	net.Listener
	address net.Addr
	closed  bool
}

func (a *at) Addr() net.Addr { return a.address }
func (a *at) Close() error   { a.closed = true; return nil }

// TestServedPlainText: tokens that cross a network readably are worth a warning, with what to set.
func TestServedPlainText(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	lo, other := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}, &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1}
	for _, c := range []struct {
		address net.Addr
		plain   bool
		warns   bool
	}{
		{other, true, true}, {other, false, false}, {lo, true, false},
		{&net.UnixAddr{Net: "unix", Name: "/run/x"}, true, false}, {&net.TCPAddr{Port: 1}, true, true},
	} {
		var log bytes.Buffer
		done := errors.New("served")
		s := served{
			what: "it", plain: c.plain, tls: "its_cert_file",
			serve: func(context.Context, net.Listener) error { return done },
			watched: osapi.Admin{Service: "It", Socket: filepath.Join(t.TempDir(), "x.sock"),
				Serve: func(ctx context.Context, l *osapi.KeySocket) error { <-ctx.Done(); return l.Close() }},
		}
		if err := s.run(t.Context(), &at{address: c.address}, nil, zerolog.New(&log)); !errors.Is(err, done) {
			t.Errorf("%s: %v", c.address, err)
		}
		if got := strings.Contains(log.String(), "plain text") &&
			strings.Contains(log.String(), "its_cert_file"); got != c.warns {
			t.Errorf("%s, plain text %v: the log is %s", c.address, c.plain, &log)
		}
	}
}

// TestServedUnwatched: a service whose configured metrics address is unavailable does not serve,
// and leaves no listener behind.
func TestServedUnwatched(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	taken := testproc.Try(net.Listen("tcp", "127.0.0.1:0")).Or(t)
	defer func() { _ = taken.Close() }()
	l := &at{address: taken.Addr()}
	s := served{
		what: "it", serve: func(context.Context, net.Listener) error { t.Error("it serves"); return nil },
		watched: osapi.Admin{Service: "It", MetricsAddress: taken.Addr().String(), Key: "it.metrics_listen"},
	}
	if err := s.run(t.Context(), l, nil, zerolog.Nop()); err == nil ||
		!strings.Contains(err.Error(), "it.metrics_listen") || !l.closed {
		t.Errorf("%v; the listener is closed: %v", err, l.closed)
	}
}
