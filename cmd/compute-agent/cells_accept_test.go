// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells"
	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cell"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/operator"
	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// cellAt serves cell1 with a database at a socket, until stop is called.
func cellAt(t *testing.T, database, socket string) (stop func()) {
	t.Helper()
	one, err := cells.NewCell(t.Context(),
		cells.CellConfig{Name: "cell1", Database: database, Auth: cell.NoAuth(), Logger: zerolog.Nop()})
	testproc.Check(t, err)
	l := testproc.Try(osapi.Listen(t.Context(), "unix://"+socket)).Or(t)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- one.Serve(ctx, l) }()
	return func() {
		cancel()
		testproc.NoError(t, <-ended)
		testproc.NoError(t, one.Close())
	}
}

// TestAcceptCell: the operator sees that a cell has another database and what that means, accepts
// it, and the cell is as any other.
func TestAcceptCell(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := t.TempDir()
	socket := filepath.Join(dir, "cell1.sock")
	run := func(wantCode int, args ...string) string {
		t.Helper()
		var out bytes.Buffer
		if code := execute(t.Context(), append(append([]string{"cells", "manage"}, args...), "--state-dir", dir),
			&out, &out); code != wantCode {
			t.Errorf("%v: exit code %d\n%s", args, code, &out)
		}
		return out.String()
	}
	says := func(what, text string, parts ...string) {
		t.Helper()
		for _, part := range parts {
			testproc.Contains(t, text, part, "%s: %q is not said:\n%s", what, part)
		}
	}
	run(cli.ExitDone, "create", "--name", "cell1", "--url", "unix://"+socket)
	says("no cell", run(cli.ExitFailed, "accept", "cell9"), `no cell "cell9"`)
	says("a cell that is down", run(cli.ExitFailed, "accept", "cell1"), "is down", "nothing was accepted")

	stop := cellAt(t, filepath.Join(dir, "one.db"), socket)
	says("the first contact", run(cli.ExitDone, "accept", "cell1"), "Accepted the database of cell cell1.")
	says("the known database", run(cli.ExitDone, "accept", "cell1"), "nothing to accept")
	says("the known database", run(cli.ExitDone, "list"), "up")
	stop()
	withServers(t, dir)

	defer cellAt(t, filepath.Join(dir, "two.db"), socket)()
	list := run(cli.ExitDone, "list")
	says("another database", list, "other database",
		"another database than before", "restore a more recent copy of its database", "cells manage accept cell1")
	if strings.Contains(list, "is down") {
		t.Errorf("it is reported as down:\n%s", list)
	}
	var views []operator.Cell
	if err := json.Unmarshal([]byte(run(cli.ExitDone, "list", "--output", "json")), &views); err != nil ||
		len(views) != 1 || views[0].State != "other database" || views[0].Cause == "" {
		t.Errorf("as JSON: %+v, %v", views, err)
	}
	says("accepting", run(cli.ExitDone, "accept", "cell1"), "active    2 servers, 2 of them missing in the cell",
		"deleted   1 servers, 0 of them still in the cell",
		"return 404", "Accepted the database of cell cell1.")
	if list := run(cli.ExitDone, "list"); strings.Contains(list, "other database") {
		t.Errorf("after it is accepted:\n%s", list)
	}
	var view operator.Acceptance
	if err := json.Unmarshal([]byte(run(cli.ExitDone, "accept", "cell1", "--output", "json")), &view); err != nil ||
		view.Accepted || view.Before == nil || view.Before.Epoch != view.Now.Epoch || view.Unknown != 2 {
		t.Errorf("as JSON: %+v, %v", view, err)
	}
}

// withServers puts two living servers and a deleted one into cell1, as far as the API database
// knows.
func withServers(t *testing.T, dir string) {
	t.Helper()
	store := testproc.Try(apidb.Open(t.Context(), filepath.Join(dir, cells.APIDatabase), apidb.Options{})).Or(t)
	defer func() { testproc.NoError(t, store.Close()) }()
	known := testproc.Try(store.Cells(t.Context())).Or(t)
	for _, uuid := range []string{"00000000-0000-4000-8000-000000000001", "00000000-0000-4000-8000-000000000002",
		"00000000-0000-4000-8000-000000000003"} {
		made := apidb.RequestSpec{Server: cellwire.Server{UUID: uuid, ProjectID: "p", UserID: "u"}}
		testproc.Check(t, store.CreateServers(t.Context(), []apidb.RequestSpec{made}, nil))
		testproc.Check(t, store.Place(t.Context(), uuid, known[0].UUID))
		testproc.Check(t, store.FinishBuild(t.Context(), uuid))
	}
	testproc.Check(t, store.SetQueued(t.Context(), map[string]bool{"00000000-0000-4000-8000-000000000003": true}))
}
