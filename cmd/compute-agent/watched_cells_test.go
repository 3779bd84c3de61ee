// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells"
	"github.com/compute-agent/compute-agent/cells/cell"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// newWatchedCell is a cell for those who watch it.
func newWatchedCell(t *testing.T) *cells.Cell {
	t.Helper()
	c, err := cells.NewCell(t.Context(),
		cells.CellConfig{Name: "cell1", Database: filepath.Join(t.TempDir(), "cell.db"),
			Auth: cell.NoAuth(), Logger: zerolog.Nop()})
	testproc.Check(t, err)
	t.Cleanup(func() { testproc.NoError(t, c.Close()) })
	return c
}

// clientAt sends all requests to an address.
func clientAt(network, address string) *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}}}
}

// page reads a path of the server at an address.
func page(t *testing.T, network, address, path string) string {
	t.Helper()
	resp := testproc.Try(clientAt(network, address).Get("http://process" + path)).Or(t)
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.Body.Close() != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %v %s", path, resp.Status, err, text)
	}
	return string(text)
}
