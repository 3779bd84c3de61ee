// SPDX-License-Identifier: Apache-2.0

package outage

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// files are those of a database that no process has open.
func files(database string) []string { return []string{database, database + "-wal"} }

// TestOlderCellDatabase: cell1 gets an older copy of its database. The operator gets a warning,
// nothing is corrected by the copy, and when the operator has accepted the copy it is used. The
// compute API is restarted for each round of its reconciler, so that the test need not wait for
// one.
func TestOlderCellDatabase(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plan{})
	defer func() { w.close(t, t.Failed()) }()
	web1, gone1 := w.begin(t, "p1", "web1", "c1h1"), w.begin(t, "p1", "gone1", "c1h1")
	w.settled(t, "ACTIVE", "web1", "gone1")

	database := w.cellDatabase("cell1")
	copies := map[string][]byte{}
	w.down(t, "cell1")
	for _, file := range files(database) {
		content, err := os.ReadFile(file) //nolint:gosec // of this test
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		check(t, err)
		copies[file] = content
	}
	w.up(t)
	w.api.ask(t, of("p1"), "2.69", "DELETE", "/servers/"+gone1, nil).status(t, 204)
	w.gone(t, "gone1")
	web2 := w.begin(t, "p1", "web2", "c1h1")
	w.settled(t, "ACTIVE", "web2")
	round := func() {
		t.Helper()
		w.api.process.Kill()
		w.api = w.serveAPI(t, "api", w.api.config)
	}
	round()
	eventually(t, "the revision of cell1 is known", func() error {
		if out, code := w.manage(t, "accept", "cell1"); code != 0 || !strings.Contains(out, "nothing to accept") || !strings.Contains(out, "previous ") {
			return errors.New(out)
		}
		return nil
	})

	w.down(t, "cell1")
	for _, file := range files(database) {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if content, is := copies[file]; is {
			check(t, os.WriteFile(file, content, 0o600))
		}
	}
	w.up(t)
	round()
	w.api.process.Await(t, 0, `"level":"error"`, "is an older copy", "cells manage accept cell1")
	if q := w.queued(t, gone1); q != "true" {
		t.Errorf("the deleted server is queued: %s", q)
	}
	if out, code := w.manage(t, "list"); code != 0 || !testproc.ContainsAll(out, []string{"other database", "cells manage accept cell1"}) {
		t.Errorf("the list of cells ended with %d:\n%s", code, out)
	}
	w.show(t, of("p1"), "2.69", "web2").fault(t, "itemNotFound", 404)
	w.api.process.Await(t, 0, `"level":"warn"`, "does not have it", web2)

	if out, code := w.manage(t, "accept", "cell1"); code != 0 || !testproc.ContainsAll(out, []string{"active    2 servers, 1 of them missing in the cell", "deleted   1 servers, 1 of them still"}) {
		t.Errorf("accepting ended with %d:\n%s", code, out)
	}
	round()
	eventually(t, "the cell is believed", func() error {
		if q := w.queued(t, gone1); q != "false" {
			return errors.New("the server that lives in the copy is queued: " + q)
		}
		return nil
	})
	if q := w.queued(t, web1); q != "false" {
		t.Errorf("the server that nothing happened to is queued: %s", q)
	}
}
