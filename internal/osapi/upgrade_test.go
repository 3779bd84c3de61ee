// SPDX-License-Identifier: Apache-2.0

package osapi_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// upgrading answers each request by taking over its connection, and sends back what comes.
type upgrading struct{ osapi.Exchange }

func (u *upgrading) Handle() error {
	c, from, err := u.Upgrade("echo")
	if err != nil {
		return err
	}
	_, _ = io.Copy(c, from)
	return c.Close()
}

func (u *upgrading) Explain(err error) *osapi.Error {
	return osapi.Errorf(http.StatusUpgradeRequired, "%v", err)
}
func (u *upgrading) Encode(e *osapi.Error) (string, []byte) { return "text/plain", []byte(e.Message) }

// TestUpgrade: what follows an upgraded request is not HTTP: nothing of it is counted as headers,
// however many lines it has, and what was sent with the request is not lost.
func TestUpgrade(t *testing.T) {
	service := osapi.NewService(osapi.Options{Logger: zerolog.Nop()})
	l := testproc.Try(net.Listen("tcp", "127.0.0.1:0")).Or(t)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	server := &osapi.Server{Logger: zerolog.Nop(),
		ReadTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			x := &upgrading{}
			service.Serve(w, r, &x.Exchange, x)
		})}
	go func() { served <- server.Serve(ctx, l) }()
	defer func() {
		cancel()
		testproc.NoError(t, <-served)
	}()
	ask := func(upgrade, rest string) (*http.Response, *bufio.Reader, *net.TCPConn) {
		t.Helper()
		c := testproc.Try(net.Dial("tcp", l.Addr().String())).Or(t)
		t.Cleanup(func() { _ = c.Close() })
		testproc.Try(fmt.Fprintf(c,
			"GET / HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\nUpgrade: %s\r\n\r\n%s", upgrade,
			rest)).Or(t)
		r := bufio.NewReader(c)
		resp := testproc.Try(http.ReadResponse(r, nil)).Or(t)
		return resp, r, c.(*net.TCPConn)
	}
	lines := strings.Repeat("GET: / HTTP/1.1\r\n", 1000)
	resp, r, c := ask("echo", lines)
	if resp.StatusCode != http.StatusSwitchingProtocols ||
		resp.Header.Get("Upgrade") != "echo" || resp.Header.Get(osapi.HeaderRequestID) == "" {
		t.Fatalf("the upgrade: got %d %v, want 101 to echo with a request id", resp.StatusCode, resp.Header)
	}
	go func() {
		_, _ = io.WriteString(c, lines)
		_ = c.CloseWrite()
	}()
	if got, err := io.ReadAll(r); err != nil || string(got) != lines+lines {
		t.Errorf("%d bytes came back of %d: %v", len(got), 2*len(lines), err)
	}
	if resp, _, _ := ask("h2c", ""); resp.StatusCode != http.StatusUpgradeRequired || resp.Close {
		t.Errorf("another protocol: %d, closes: %v", resp.StatusCode, resp.Close)
	}
}
