// SPDX-License-Identifier: Apache-2.0

package outage

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
	"github.com/compute-agent/compute-agent/test/world"
)

// TestUpgrade brings a deployment of before queued_for_delete up to date, with a cell down in the
// middle of it: the schema step adds the column, what is not migrated counts as living, and the
// online migration fills it.
func TestUpgrade(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := withHosts(t, world.Plan{}, 64<<10, 64<<10)
	p1 := world.Of("p1")
	w.Begin("p1", "web1", "c1h1")
	w.Begin("p1", "web2", "c2h1")
	w.Begin("p1", "gone1", "c1h1")
	w.Settled("ACTIVE", "web1", "web2", "gone1")
	w.Ask(p1, "2.69", "DELETE", "/servers/"+w.ID("gone1"), nil).Is(t, 204)
	w.Gone("gone1")
	w.API.Kill()

	// The database as the program of then would have it: the same rows, and no column for what was
	// not known yet.
	w.ConfigureAPI(`compute_api.database = "sqlite://` + w.Path("old.db") + `"`)
	w.Manage("db", "upgrade", "--to", "1")
	for _, table := range []string{
		"cell_mappings", "host_mappings", "node_mappings", "request_specs", "flavors",
		"instance_mappings (id, instance_uuid, cell_id, project_id, user_id, created_at, updated_at)",
	} {
		copied(t, w.database(), w.Path("old.db"), table)
	}
	if out, code := w.Run("cells", "api", "--config", w.APIConfig); code == 0 ||
		!testproc.ContainsAll(out, []string{"1 of ", "db upgrade"}) {
		t.Errorf("the compute API ends on an old database with %d, and prints:\n%s", code, out)
	}
	w.Manage("db", "upgrade")
	w.Manage("db", "upgrade") // again: nothing to do
	w.StartAPI()

	w.lists(p1, "2.69", "web2", "web1")
	w.Kill("cell1")
	servers := w.Listed(w.Get(p1, "2.69", "/servers"))
	// no process knows that it is deleted
	if slices.Sort(servers); !slices.Equal(servers, []string{"gone1?", "web1?", "web2"}) {
		t.Errorf("before the migration there are %v", servers)
	}
	if out := w.migrates(70, "1"); !strings.Contains(out, "cell cell1") || strings.Contains(out, "cell cell2") {
		t.Errorf("it prints:\n%s", out)
	}
	w.Revive()
	w.migrates(0, "2")
	w.migrates(0, "0")
	w.Kill("cell1")
	w.lists(p1, "2.69", "web1?", "web2")
	w.Show(p1, "2.69", "gone1").Fault(t, "itemNotFound", 404)
}

// migrationRow is the row of the table that the command prints.
var migrationRow = regexp.MustCompile(`(?m)^\| populate_queued_for_delete \| +(\d+) +\| +(\d+) +\|$`)

// migrates runs the online migration, and checks its exit code and how many it says were done.
func (d deployment) migrates(code int, done string) string {
	d.T.Helper()
	out, got := d.TryManage("db", "online-data-migrations")
	row := migrationRow.FindStringSubmatch(out)
	if got != code || row == nil || row[1] != done || row[2] != done {
		d.T.Errorf("online-data-migrations ended with %d, not %d and %s found and done:\n%s", got, code, done, out)
	}
	return out
}
