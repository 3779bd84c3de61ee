// SPDX-License-Identifier: Apache-2.0

package outage

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestUpgrade brings a deployment of before queued_for_delete up to date, with a cell down in the
// middle of it: the schema step adds the column, what is not migrated counts as living, and the
// online migration fills it.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	w := newWorld(t, plan{})
	defer func() { w.close(t, t.Failed()) }()
	w.begin(t, "p1", "web1", "c1h1")
	w.begin(t, "p1", "web2", "c2h1")
	w.begin(t, "p1", "gone1", "c1h1")
	w.settled(t, "ACTIVE", "web1", "web2", "gone1")
	w.api.ask(t, of("p1"), "2.69", "DELETE", "/servers/"+w.id(t, "gone1"), nil).status(t, 204)
	w.gone(t, "gone1")
	w.api.process.Kill()

	// The database as the program of then would have it: the same rows, and no column for what was
	// not known yet.
	old := filepath.Join(w.dir, "old.db")
	dsn := "compute_api.database = " + quoted("sqlite://"+old)
	config := w.configureAPI(t, "upgraded", []string{dsn})
	must(t, "cells", "manage", "db", "upgrade", "--to", "1", "--config", config)
	for _, table := range []string{
		"cell_mappings", "host_mappings", "node_mappings", "request_specs", "flavors",
		"instance_mappings (id, instance_uuid, cell_id, project_id, user_id, created_at, updated_at)",
	} {
		copied(t, w.database(), old, table)
	}
	if out, code := command(t, "cells", "api", "--config", config); code == 0 || !testproc.ContainsAll(out, []string{"1 of ", "db upgrade"}) {
		t.Errorf("the compute API ends on an old database with %d, and prints:\n%s", code, out)
	}
	must(t, "cells", "manage", "db", "upgrade", "--config", config)
	must(t, "cells", "manage", "db", "upgrade", "--config", config) // again: nothing to do
	w.apiDatabase = old
	w.api = w.serveAPI(t, "upgraded", config)

	w.lists(t, w.api.get(t, of("p1"), "2.69", "/servers"), "web2", "web1")
	w.down(t, "cell1")
	servers := w.named(t, w.api.get(t, of("p1"), "2.69", "/servers").servers(t))
	if slices.Sort(servers); !slices.Equal(servers, []string{"gone1?", "web1?", "web2"}) { // no process knows that it is deleted
		t.Errorf("before the migration there are %v", servers)
	}
	w.migrates(t, 70, "1")
	w.up(t)
	w.migrates(t, 0, "2")
	w.migrates(t, 0, "0")
	w.down(t, "cell1")
	w.lists(t, w.api.get(t, of("p1"), "2.69", "/servers"), "web1?", "web2")
	w.show(t, of("p1"), "2.69", "gone1").fault(t, "itemNotFound", 404)
}
