// SPDX-License-Identifier: Apache-2.0

package cells_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestCellAdminSocket: it is its owner's alone, goes with the process, and one that finds it taken
// serves all the same, and says what it lacks.
func TestCellAdminSocket(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := filepath.Join(t.TempDir(), "run")
	admin := newCell(t, "cell1").Admin(dir, "")
	testproc.Equal(t, admin.Key, "cell.metrics_listen", "the key is %s")
	var first, second bytes.Buffer
	stop := testproc.Try(admin.Start(t.Context(), zerolog.New(&first))).Or(t)
	socket := filepath.Join(dir, "cell-cell1.sock")
	if info, err := os.Stat(socket); err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("the socket: %v, %v", info, err)
	}
	stopSecond := testproc.Try(admin.Start(t.Context(), zerolog.New(&second))).Or(t)
	stopSecond()
	if status, text := get(t, socket, "/readyz"); status != 200 || text != "ready\ncell1: up\n" {
		t.Errorf("readyz says %d %q", status, text)
	}
	if _, text := get(t, socket, "/metrics"); !strings.Contains(text, "compute_agent_cell_database_up 1\n") {
		t.Error("the metrics lack the database")
	}
	stop()
	if !strings.Contains(second.String(), "--runtime-dir") || strings.Contains(first.String(), "warn") {
		t.Errorf("the first says %s, the second %s", &first, &second)
	}
	if _, err := os.Stat(socket); !os.IsNotExist(err) {
		t.Errorf("the socket is left behind: %v", err)
	}
}

// TestCellSocket: no name of a cell leads out of the directory.
func TestCellSocket(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, want := range map[string]string{"cell1": "cell-cell1.sock",
		"../x": "cell-..%2Fx.sock", "": "cell-.sock"} {
		testproc.Equal(t, cells.CellSocket(name), want, "%q: %q", name)
	}
}
