// SPDX-License-Identifier: Apache-2.0

package outage

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
	"github.com/compute-agent/compute-agent/test/world"
)

// TestOlderCellDatabase: cell1 gets an older copy of its database. The operator gets a warning,
// nothing is corrected by the copy, and when the operator has accepted the copy it is used. The
// compute API is restarted for each round of its reconciler, so that the test need not wait for
// one.
func TestOlderCellDatabase(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := withHosts(t, world.Plan{}, 64<<10, 64<<10)
	web1, gone1 := w.Begin("p1", "web1", "c1h1"), w.Begin("p1", "gone1", "c1h1")
	w.Settled("ACTIVE", "web1", "gone1")

	database := w.cellDatabase("cell1")
	copies := map[string][]byte{}
	w.Kill("cell1")
	for _, file := range []string{database, database + "-wal"} {
		content, err := os.ReadFile(file)
		if !errors.Is(err, fs.ErrNotExist) {
			check(t, err)
			copies[file] = content
		}
	}
	w.Revive()
	w.Ask(world.Of("p1"), "2.69", "DELETE", "/servers/"+gone1, nil).Is(t, 204)
	w.Gone("gone1")
	web2 := w.Boot("p1", "web2", "c1h1")
	round := func() {
		t.Helper()
		w.API.Kill()
		w.StartAPI()
	}
	round()
	w.Eventually("the revision of cell1 is known", func() error {
		if out, code := w.TryManage("accept", "cell1"); code != 0 || !strings.Contains(out, "nothing to accept") ||
			!strings.Contains(out, "previous ") {
			return errors.New(out)
		}
		return nil
	})

	w.Kill("cell1")
	for _, file := range []string{database, database + "-wal"} {
		if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if content, is := copies[file]; is {
			check(t, os.WriteFile(file, content, 0o600))
		}
	}
	w.Revive()
	round()
	w.API.Await(t, 0, `"level":"error"`, "is an older copy", "cells manage accept cell1")
	testproc.Equal(t, w.queued(gone1), "true", "the deleted server is queued: %s")
	if out, code := w.TryManage("list"); code != 0 ||
		!testproc.ContainsAll(out, []string{"other database", "cells manage accept cell1"}) {
		t.Errorf("the list of cells ended with %d:\n%s", code, out)
	}
	w.Show(world.Of("p1"), "2.69", "web2").Fault(t, "itemNotFound", 404)
	w.API.Await(t, 0, `"level":"warn"`, "does not have it", web2)

	out := w.Manage("accept", "cell1")
	if !testproc.ContainsAll(out,
		[]string{"active    2 servers, 1 of them missing in the cell", "deleted   1 servers, 1 of them still"}) {
		t.Errorf("accepting says:\n%s", out)
	}
	round()
	w.Eventually("the cell is believed", func() error {
		if q := w.queued(gone1); q != "false" {
			return errors.New("the server that lives in the copy is queued: " + q)
		}
		return nil
	})
	testproc.Equal(t, w.queued(web1), "false", "the server that nothing happened to is queued: %s")
}
