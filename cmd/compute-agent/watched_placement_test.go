// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func newServer(t *testing.T) *placement.Server {
	t.Helper()
	server, err := placement.New(t.Context(), placement.Config{StateDir: t.TempDir(), Auth: placement.Auth{Strategy: placement.NoAuth}, Logger: zerolog.Nop()})
	testproc.Check(t, err)
	t.Cleanup(func() { testproc.NoError(t, server.Close()) })
	return server
}

// TestAdminSocket: it is its owner's alone, goes with the service, and a second service that finds
// it taken serves all the same, and says what it lacks.
func TestAdminSocket(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	var cfg config.Config
	cfg.Agent.RuntimeDir = filepath.Join(t.TempDir(), "run")
	socket := filepath.Join(cfg.Agent.RuntimeDir, placementAdminSocket)
	var first, second bytes.Buffer
	stop := testproc.Try(serveWatched(t.Context(), watchPlacement(&cfg, newServer(t)), zerolog.New(&first))).Or(t)
	if info, err := os.Stat(socket); err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("the socket: %v, %v", info, err)
	}
	stopSecond, err := serveWatched(t.Context(), watchPlacement(&cfg, newServer(t)), zerolog.New(&second))
	testproc.Check(t, err)
	if !strings.Contains(second.String(), "--runtime-dir") || strings.Contains(first.String(), "warn") {
		t.Errorf("the first says %s, the second %s", &first, &second)
	}
	stopSecond()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	resp := testproc.Try(client.Get("http://placement/status")).Or(t)
	_ = resp.Body.Close()
	testproc.Equal(t, resp.StatusCode, http.StatusOK, "/status: %d")
	stop()
	if _, err := os.Stat(socket); !os.IsNotExist(err) {
		t.Errorf("the socket is left behind: %v", err)
	}
}
