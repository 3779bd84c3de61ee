// SPDX-License-Identifier: Apache-2.0

package outage

import (
	"regexp"
	"strings"
	"testing"
)

// migrationLane is the online data migration of queued_for_delete.
var migrationLane = lane{build: migrationWorld, cases: []aCase{
	{56, "migration", func(t *testing.T, w *world) {
		all := []string{"m1", "m2", "m3", "m4", "soft1", "soft2", "gone1", "gone2", "lost"}
		w.unmigrate(t, all...)
		w.migrates(t, 1, "2", "--max-count", "2")
		left := 0
		for _, name := range all {
			if w.queued(t, w.id(t, name)) == "null" {
				left++
			}
		}
		if left != len(all)-2 {
			t.Errorf("%d are left of %d", left, len(all))
		}
		w.migrates(t, 0, "7")
		for name, want := range map[string]string{
			"m1": "false", "m2": "false", "m3": "false", "m4": "false", "lost": "false", "soft1": "true", "soft2": "true", "gone1": "true", "gone2": "true",
		} {
			if q := w.queued(t, w.id(t, name)); q != want {
				t.Errorf("%s: queued_for_delete is %s, not %s", name, q, want)
			}
		}
		w.down(t, "cell0", "cell1", "cell2") // no cell is asked when there is nothing to do
		w.migrates(t, 0, "0")
		w.migrates(t, 0, "0", "--max-count", "2")
		w.up(t)
	}},
	{57, "migration_with_a_cell_down", func(t *testing.T, w *world) {
		w.unmigrate(t, "m1", "m3", "gone1", "gone2")
		w.down(t, "cell1")
		if out := w.migrates(t, 70, "2"); !strings.Contains(out, "cell cell1") || strings.Contains(out, "cell cell2") {
			t.Errorf("it prints:\n%s", out)
		}
		for name, want := range map[string]string{"m1": "null", "gone1": "null", "m3": "false", "gone2": "true"} {
			if q := w.queued(t, w.id(t, name)); q != want {
				t.Errorf("%s: queued_for_delete is %s, not %s", name, q, want)
			}
		}
		w.up(t)
		w.migrates(t, 0, "2")
		for name, want := range map[string]string{"m1": "false", "gone1": "true"} {
			if q := w.queued(t, w.id(t, name)); q != want {
				t.Errorf("%s: queued_for_delete is %s, not %s", name, q, want)
			}
		}
	}},
	{58, "migration_of_what_is_nowhere", func(t *testing.T, w *world) {
		w.placement.Kill()
		w.accepted(t, w.api.post(t, of("p1"), "waiting", nil), "waiting")
		w.unmigrate(t, "gone1", "waiting")
		w.down(t, "cell1")
		edit(t, w.cellDatabase("cell1"), "DELETE FROM instances WHERE uuid = ?", w.id(t, "gone1")) // purged
		w.revive(t, "cell1")
		w.migrates(t, 0, "1")
		for name, want := range map[string]string{"gone1": "false", "waiting": "null"} {
			if q := w.queued(t, w.id(t, name)); q != want {
				t.Errorf("%s: queued_for_delete is %s, not %s", name, q, want)
			}
		}
	}},
}}

func migrationWorld(t *testing.T) *world {
	w := newWorld(t, plan{api: []string{`compute_api.reclaim_instance_interval = "1h"`}})
	for _, s := range []struct{ name, host string }{
		{"m1", "c1h1"}, {"m2", "c1h1"}, {"m3", "c2h1"}, {"m4", "c2h1"}, {"soft1", "c1h1"}, {"soft2", "c2h1"}, {"gone1", "c1h1"}, {"gone2", "c2h1"},
	} {
		w.begin(t, "p1", s.name, s.host)
	}
	w.bury(t, "p1", "lost")
	w.settled(t, "ERROR", "lost")
	w.settled(t, "ACTIVE", "m1", "m2", "m3", "m4", "soft1", "soft2", "gone1", "gone2")
	for _, name := range []string{"soft1", "soft2"} {
		w.api.ask(t, of("p1"), "2.69", "DELETE", "/servers/"+w.id(t, name), nil).status(t, 204)
	}
	for _, name := range []string{"gone1", "gone2"} {
		w.api.act(t, of("p1"), w.id(t, name), "forceDelete").status(t, 202)
	}
	w.settled(t, "SOFT_DELETED", "soft1", "soft2")
	w.gone(t, "gone1")
	w.gone(t, "gone2")
	return w
}

// unmigrate makes mappings as they were before there was a queued_for_delete.
func (w *world) unmigrate(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		w.edit(t, "UPDATE instance_mappings SET queued_for_delete = NULL WHERE instance_uuid = ?", w.id(t, name))
	}
}

// migrationRow is the row of the table that the command prints.
var migrationRow = regexp.MustCompile(`(?m)^\| populate_queued_for_delete \| +(\d+) +\| +(\d+) +\|$`)

// migrates runs the migration, and checks its exit code and how many it says were done.
func (w *world) migrates(t *testing.T, code int, done string, args ...string) string {
	t.Helper()
	out, got := w.manage(t, append([]string{"db", "online-data-migrations"}, args...)...)
	if got != code {
		t.Errorf("online-data-migrations %v ended with %d, not %d:\n%s", args, got, code, out)
	}
	row := migrationRow.FindStringSubmatch(out)
	if row == nil || row[1] != done || row[2] != done {
		t.Errorf("online-data-migrations %v prints %q, and not that %s were found and done:\n%s", args, row, done, out)
	}
	return out
}
