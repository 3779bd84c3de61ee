// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells"
	"github.com/compute-agent/compute-agent/cells/cell"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// manage runs `cells manage` with a state directory.
func manage(t *testing.T, dir string, args ...string) (out, told string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := newCells()
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.SetArgs(append(append([]string{"manage"}, args...), "--state-dir", dir))
	err = cmd.ExecuteContext(t.Context())
	return stdout.String(), stderr.String(), err
}

// TestManageTheWrongDatabase: a command about a database that does not exist says so, and does not
// create one that no process serves.
func TestManageTheWrongDatabase(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := t.TempDir()
	database := filepath.Join(dir, cells.APIDatabase)
	for _, args := range [][]string{
		{"list"}, {"list-hosts"}, {"discover-hosts"}, {"delete-host", "h"}, {"audit"}, {"disable", "c"},
		{"enable", "c"}, {"update", "c", "--name", "d"}, {"delete", "c"}, {"accept", "c"},
		{"db", "online-data-migrations"},
	} {
		if _, _, err := manage(t, dir, args...); err == nil || !strings.Contains(err.Error(), database) ||
			!strings.Contains(err.Error(), "--state-dir") {
			t.Errorf("%v: %v", args, err)
		}
	}
	if found, err := os.ReadDir(dir); err != nil || len(found) > 0 {
		t.Errorf("the directory has %v, %v", found, err)
	}
	if _, told, err := manage(t, dir, "create", "--name", "cell1", "--url", "http://127.0.0.1:1"); err != nil ||
		!strings.Contains(told, database) {
		t.Errorf("the first cell: %q, %v", told, err)
	}
	if _, told, err := manage(t, dir, "create", "--name", "cell2", "--url", "http://127.0.0.1:2"); err != nil ||
		told != "" {
		t.Errorf("the second cell: %q, %v", told, err)
	}
	if out, _, err := manage(t, dir, "list"); err != nil || !strings.Contains(out, "cell2") {
		t.Errorf("%s, %v", out, err)
	}
}

// TestADatabaseOfAnother: what is another cell's, or in use, is refused before anything is touched,
// the socket of the one that uses it too. Starting the service again would not help with the first.
func TestADatabaseOfAnother(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := t.TempDir()
	one, err := cells.NewCell(t.Context(),
		cells.CellConfig{Name: "cell1", Database: filepath.Join(dir, cells.CellDatabase),
			Auth: cell.NoAuth(), Logger: zerolog.Nop()})
	testproc.Check(t, err)
	socket := filepath.Join(dir, "cell.sock")
	l := testproc.Try(osapi.Listen(t.Context(), "unix://"+socket)).Or(t)
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := l.Close(); err != nil { // no process answers, as during a start
		t.Fatal(err)
	}
	serve := func(name string) (int, string) {
		var stderr bytes.Buffer
		code := execute(t.Context(), []string{"cells", "serve", "--name", name, "--state-dir", dir, "--listen",
			"unix://" + socket}, &stderr, &stderr)
		return code, stderr.String()
	}
	if code, said := serve("cell1"); code != cli.ExitFailed || !strings.Contains(said, "another process (pid ") {
		t.Errorf("while it is in use: %d, %s", code, said)
	}
	if _, err := os.Stat(socket); err != nil {
		t.Errorf("the socket of the process that uses it: %v", err)
	}
	testproc.Check(t, one.Close())
	if code, said := serve("cell2"); code != cli.ExitProtect ||
		!strings.Contains(said, `belongs to the cell "cell1", not to "cell2"`) {
		t.Errorf("under another name: %d, %s", code, said)
	}
	testproc.Check(t, os.WriteFile(filepath.Join(dir, cells.APIDatabase),
		[]byte(strings.Repeat("unrelated notes ", 100)), 0o600))
	var stderr bytes.Buffer
	if code := execute(t.Context(), []string{"cells", "manage", "list", "--state-dir", dir}, &stderr,
		&stderr); code != cli.ExitProtect {
		t.Errorf("an invalid API database: %d, %s", code, &stderr)
	}
}

// TestRenamedCellWarns: the command warns that certificates have the former name of a cell.
func TestRenamedCellWarns(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := t.TempDir()
	if _, _, err := manage(t, dir, "create", "--name", "cell1", "--url", "http://127.0.0.1:1"); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ name, warned string }{{"cell1", ""},
		{"cell2", "name the cell cell1 until they are renewed"}} {
		_, told, err := manage(t, dir, "update", "cell1", "--name", tc.name, "--url", "http://127.0.0.1:2")
		if err != nil || !strings.Contains(told, tc.warned) || (tc.warned == "") != (told == "") {
			t.Errorf("to %s: %v, told %q, want %q", tc.name, err, told, tc.warned)
		}
	}
}

// servedCell serves a cell named cell1 until the test ends, and returns its URL.
func servedCell(t *testing.T) string {
	t.Helper()
	one, err := cells.NewCell(t.Context(),
		cells.CellConfig{Name: "cell1", Database: filepath.Join(t.TempDir(), "cell.db"),
			Auth: cell.NoAuth(), Logger: zerolog.Nop()})
	testproc.Check(t, err)
	l := testproc.Try(net.Listen("tcp", "127.0.0.1:0")).Or(t)
	ended := make(chan error)
	go func() { ended <- one.Serve(t.Context(), l) }()
	t.Cleanup(func() {
		testproc.NoError(t, <-ended)
		testproc.NoError(t, one.Close())
	})
	return "http://" + l.Addr().String()
}

// TestAnotherCellAtTheURL: one cell under the address of another is down, and the operator
// sees which one answers.
func TestAnotherCellAtTheURL(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := t.TempDir()
	url := servedCell(t)
	for name, at := range map[string]string{"cell1": url, "cell2": url + "/"} { // another spelling, so another URL
		if _, _, err := manage(t, dir, "create", "--name", name, "--url", at); err != nil {
			t.Fatal(err)
		}
	}
	out, _, err := manage(t, dir, "list")
	if err != nil || strings.Contains(out, "cell1 is down") || !strings.Contains(out, `cell2 is down`) ||
		!strings.Contains(out, `this is the cell "cell1"`) {
		t.Errorf("%v:\n%s", err, out)
	}
}
