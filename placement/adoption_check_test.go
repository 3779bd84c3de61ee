// SPDX-License-Identifier: Apache-2.0

package placement_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/placement/store"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/placementtest"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestAdoptionFindings: what is unusual about a database is found, and judged. What must be
// repaired keeps it from being adopted, and the statement that repairs it does.
func TestAdoptionFindings(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	whole := filepath.Join(t.TempDir(), "placement.db")
	dsn := "sqlite://" + whole
	expectAll(t, cloud(), ours(t, whole, cloud()))
	if done := handDatabaseBack(t, dsn); done.Before != store.StateAdopted || done.Tables != 4 {
		t.Fatalf("handing the database back: got %+v, want 4 tables, adopted before", done)
	}
	if found, findings := checkDatabase(t, dsn); found.State != store.StateOpenStack || len(findings) != 0 {
		t.Fatalf("a database with nothing unusual: %+v", found)
	}
	vcpu := "(SELECT resource_provider_id, resource_class_id FROM inventories WHERE resource_class_id = 0 LIMIT 1)"
	for _, c := range []struct {
		id      string
		verdict store.Verdict
		make    string
	}{
		{"unknown-version", store.MustRepair, "UPDATE alembic_version SET version_num = 'b5c396305c25'"},
		{"unknown-version", store.MustRepair, "UPDATE alembic_version SET version_num = 'fffffffffffff'"},
		{"orphaned-inventory", store.MustRepair, "UPDATE inventories SET resource_class_id = 9999 WHERE id = 1"},
		{"orphaned-allocation", store.MustRepair, "UPDATE allocations SET resource_provider_id = 9999 WHERE id = 1"},
		{"orphaned-trait", store.MustRepair,
			"INSERT INTO resource_provider_traits (trait_id, resource_provider_id) VALUES (1, 9999)"},
		{"orphaned-aggregate", store.MustRepair,
			"INSERT INTO resource_provider_aggregates (aggregate_id, resource_provider_id) VALUES (9999, 1)"},
		{"unknown-owner", store.MustRepair, "UPDATE consumers SET project_id = 9999 WHERE uuid = '" + guest(1) + "'"},
		{"unknown-type", store.MustRepair,
			"UPDATE consumers SET consumer_type_id = 9999 WHERE uuid = '" + guest(1) + "'"},
		{"missing-parent", store.MustRepair, "UPDATE resource_providers SET parent_provider_id = 9999 WHERE uuid = '" +
			placementtest.UUID("agpu") + "'"},
		{"parent-loop", store.MustRepair, "UPDATE resource_providers SET parent_provider_id = id WHERE uuid = '" +
			placementtest.UUID("a") + "'"},
		{"unreadable", store.MustRepair, "UPDATE inventories SET total = 'many' WHERE id = 1"},
		{"no-root", store.Harmless, "UPDATE resource_providers SET root_provider_id = NULL"},
		{"other-root", store.Shown, "UPDATE resource_providers SET root_provider_id = id"},
		{"missing-consumers", store.Harmless, "DELETE FROM consumers WHERE uuid = '" + guest(1) + "'"},
		{"empty-consumers", store.Harmless, "DELETE FROM allocations WHERE consumer_id = '" + guest(1) + "'"},
		{"overcommit", store.Shown, "UPDATE allocations SET used = 100 WHERE consumer_id = '" + guest(1) +
			"' AND resource_class_id = 0"},
		{"no-inventory", store.Shown, "DELETE FROM inventories WHERE resource_class_id = 0"},
		{"step-size-0", store.Shown,
			"UPDATE inventories SET step_size = 0 WHERE (resource_provider_id, resource_class_id) IN " + vcpu},
		{"units", store.Shown,
			"UPDATE inventories SET max_unit = 0 WHERE (resource_provider_id, resource_class_id) IN " + vcpu},
		{"amounts", store.Shown, "UPDATE inventories SET total = reserved WHERE resource_class_id = 1"},
		{"allocated-twice", store.Shown,
			"INSERT INTO allocations (resource_provider_id, consumer_id, resource_class_id, used) SELECT " +
				"resource_provider_id, consumer_id, resource_class_id, 1 FROM allocations WHERE id = 1"},
		{"names-by-case", store.Harmless, "UPDATE resource_providers SET name = 'SHARED' WHERE uuid = '" +
			placementtest.UUID("agpu") + "'"},
		{"unknown-class", store.Shown, "UPDATE resource_classes SET name = 'NEWER_CLASS' WHERE name = 'CUSTOM_GPU'"},
	} {
		file := copyFile(t, whole)
		execute(t, file, c.make)
		dsn := "sqlite://" + file
		found, findings := checkDatabase(t, dsn)
		if f := findings[c.id]; f.Verdict != c.verdict || f.Count < 1 || f.Meaning == "" {
			t.Errorf("%s: %+v of %+v", c.id, f, found)
		}
		testproc.Equal(t, found.MustRepair(), c.verdict == store.MustRepair, "%s: must be repaired is %v", c.id)
		_, err := placement.Adopt(t.Context(), placement.Config{Database: dsn}, store.AdoptOptions{})
		if (err == nil) != (c.verdict != store.MustRepair) || err != nil && !errors.Is(err, store.ErrRefused) {
			t.Errorf("%s: adopting gave %v", c.id, err)
		}
		if findings[c.id].Fix == "" || len(findings[c.id].Examples) == 0 && !strings.HasPrefix(c.id, "un") {
			t.Errorf("%s does not say where it is or what to do: %+v", c.id, findings[c.id])
		}
		if fix := findings[c.id].Fix; strings.HasPrefix(fix, "DELETE") && !strings.Contains(fix, "not needed") ||
			c.id == "missing-parent" || c.id == "unknown-type" {
			execute(t, file, fix)
			if found, _ := checkDatabase(t, dsn); found.MustRepair() {
				t.Errorf("%s: the statement %q did not repair it: %+v", c.id, fix, found)
			}
		}
		if c.verdict != store.MustRepair {
			ours(t, file, nil) // what can be adopted can be served
		}
	}
}

// TestRealAdoptionOfNothing: an empty database and another program's are no databases to adopt.
func TestRealAdoptionOfNothing(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dsn := dbservers.MariaDB(t)
	if found, _ := checkDatabase(t, dsn); found.State != store.StateEmpty {
		t.Errorf("empty: %+v", found)
	}
	if _, err := placement.Adopt(t.Context(), placement.Config{Database: dsn},
		store.AdoptOptions{}); !errors.Is(err, store.ErrRefused) {
		t.Errorf("empty: %v", err)
	}
	testproc.Check(t, onServer(t, dsn, "CREATE TABLE instances (id INTEGER)"))
	if _, err := placement.CheckAdoption(t.Context(), placement.Config{Database: dsn}); err == nil ||
		!strings.Contains(err.Error(), "another program") {
		t.Errorf("another program's: %v", err)
	}
}

// TestAdoptionOfNova: Nova's databases have tables with the names of Placement's. Neither is
// adopted, and the error says whose it is.
func TestAdoptionOfNova(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	whole := filepath.Join(t.TempDir(), "placement.db")
	ours(t, whole, nil)
	handDatabaseBack(t, "sqlite://"+whole)
	for _, c := range []struct{ table, want string }{{"flavor_extra_specs", "Nova's API database"},
		{"instance_extra", "a cell of Nova"}} {
		file := copyFile(t, whole)
		execute(t, file, "CREATE TABLE "+c.table+" (id INTEGER)")
		execute(t, file, "UPDATE alembic_version SET version_num = 'b30f573d3377'")
		for what, err := range map[string]error{
			"check": func() error {
				_, err := placement.CheckAdoption(t.Context(), placement.Config{Database: "sqlite://" + file})
				return err
			}(),
			"adopt": func() error {
				_, err := placement.Adopt(t.Context(),
					placement.Config{Database: "sqlite://" + file}, store.AdoptOptions{})
				return err
			}(),
		} {
			if !errors.Is(err, engine.ErrSchema) || !strings.Contains(err.Error(), c.want) ||
				!strings.Contains(err.Error(), "not adopted") {
				t.Errorf("%s of a database with %s: %v", what, c.table, err)
			}
		}
	}
}

// TestRealNamesByCase: where the database does not tell A from a, as OpenStack's tables of MariaDB
// have it, the second name is refused, and other writes go on.
func TestRealNamesByCase(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dsn := theirDatabase(t, dbservers.MariaDB)
	testproc.Check(t, onServer(t, dsn,
		"ALTER TABLE resource_providers MODIFY name VARCHAR(200) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci"))
	adoptDatabase(t, dsn)
	if _, findings := checkDatabase(t, dsn); findings["case"].Count != 1 {
		t.Errorf("the check of a database with names in any case: got %+v, want one finding of case", findings)
	}
	got := ours(t, dsn, []upstreamCall{
		{"POST", "/resource_providers", `{"name":"SHARED"}`, at139},
		{"POST", "/resource_providers", `{"name":"other"}`, at139},
	})
	if got[0].Status != 409 || got[1].Status != 200 {
		t.Errorf("got %+v", got)
	}
}
