// SPDX-License-Identifier: Apache-2.0

package apidb_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// testUpgrade: a database of before queued_for_delete, with servers in it, is refused for service,
// upgraded, and its rows are NULL: living, and not migrated. New ones are known at once.
func testUpgrade(t *testing.T, e testEngine) {
	for name, upgrade := range map[string]func(path string) error{
		"by the command": func(path string) error {
			had, err := apidb.Migrate(ctx, path, 0)
			testproc.Equal(t, had, 1, "the database had %d steps")
			return err
		},
		"by opening": func(path string) error {
			s, err := apidb.OpenAndUpgrade(ctx, path, apidb.Options{})
			if err != nil {
				return err
			}
			return s.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := old(t, e)
			_, err := apidb.Open(ctx, path, apidb.Options{})
			wantError(t, "opening an old database for service", err, apidb.ErrSchema)
			if err == nil || !strings.Contains(err.Error(), "compute-agent cells manage db upgrade") ||
				!strings.Contains(err.Error(), shown(t, path)) || !strings.Contains(err.Error(), "1 of") {
				t.Errorf("the error does not say what, where and what to do: %v", err)
			}
			if has, knows, err := apidb.Version(ctx, path); err != nil || has != 1 || knows < 2 {
				t.Errorf("the refused database has had %d of %d steps, %v", has, knows, err)
			}
			must(t, upgrade(path))
			s := open(t, path, apidb.Options{})
			defer shut(t, s)
			if has, knows, err := s.SchemaVersion(ctx); err != nil || has != knows {
				t.Errorf("the upgraded database has had %d of %d steps, %v", has, knows, err)
			}
			ms, err := s.Unmigrated(ctx, cellUUID(1), 0)
			wantUUIDs(t, "not migrated", ms, err, "old1", "old2")
			wants[apidb.Counts](t,
				"counts")(s.CountProject(ctx, "p", "", nil))(apidb.Counts{Instances: 2,
				Cores: 3, RAM: 640, Unmigrated: 2})
			ms, err = s.Mappings(ctx, apidb.MappingFilter{ProjectID: "p", Living: true})
			wantUUIDs(t, "living", ms, err, "old2", "old1")
			spec, err := s.RequestSpec(ctx, "old1")
			if must(t, err); spec.UUID != "old1" || spec.Flavor.VCPUs != 1 || spec.ForcedHost != "host1" {
				t.Errorf("the specification is %+v", spec)
			}
			build, err := s.BuildRequest(ctx, "old2")
			if must(t, err); build.UUID != "old2" || build.Name != "web" || build.Host != "" ||
				build.ForcedHost != "host2" || build.ForcedNode != "node2" || build.CellUUID != cellUUID(1) {
				t.Errorf("the build request is %+v", build)
			}
			must(t, s.CreateServers(ctx, []apidb.RequestSpec{server("new", "p")}, nil))
			m, err := s.Mapping(ctx, "new")
			if must(t, err); m.QueuedForDelete == nil || *m.QueuedForDelete {
				t.Errorf("the mapping of a new server is %+v", m)
			}
			if got, err := s.Mapping(ctx, "old1"); err != nil || got.QueuedForDelete != nil {
				t.Errorf("the mapping of an old server is %+v, %v", got, err)
			}
		})
	}
}

// old is a database that has had the first step, with two servers in cell1, of which the second is
// being built. The rows are those of a program before [apidb.RequestSpec] was all that was asked
// for.
func old(t *testing.T, e testEngine) string {
	t.Helper()
	path := e.empty(t)
	if had, err := apidb.Migrate(ctx, path, 1); err != nil || had != 0 {
		t.Fatal(had, err)
	}
	statements := []string{"INSERT INTO cell_mappings (uuid, name, url, created_at) VALUES ('" + cellUUID(1) +
		"', 'cell1', 'http://one', 1)"}
	for i := 1; i <= 2; i++ {
		statements = append(statements,
			fmt.Sprintf(
				"INSERT INTO instance_mappings (instance_uuid, cell_id, project_id, user_id, created_at) VALUES "+
					"('old%d', 1, 'p', 'u', %d)", i, i),
			fmt.Sprintf(
				`INSERT INTO request_specs (instance_uuid, vcpus, memory_mb, spec) VALUES ('old%d', %d, 320, `+
					`'{"instance_uuid": "old%d", "flavor": {"vcpus": %d}, "host": "host%d", "node": "node%d"}')`, i, i,
				i, i, i, i))
	}
	statements = append(statements, `INSERT INTO build_requests (instance_uuid, project_id, created_at, instance)
		VALUES ('old2', 'p', 2, '{"uuid": "old2", "project_id": "p", "name": "web", "flavor": {"vcpus": 2}, "vm_state": "building"}')`)
	execute(t, path, statements...)
	return path
}

// shown is how an error names a database: without a password.
func shown(t testing.TB, name string) string {
	t.Helper()
	address := testproc.Try(engine.ParseAddress(name)).Or(t)
	return address.String()
}

// TestUpgradeIsWhole: an upgrade that fails leaves the database as it was.
func TestUpgradeIsWhole(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	path := old(t, testEngine{empty: func(t testing.TB) string { return filepath.Join(t.TempDir(), "api.db") }})
	// what step 2 makes last
	execute(t, path, "CREATE TABLE other (instance_uuid TEXT)",
		"CREATE INDEX instance_mappings_unmigrated ON other (instance_uuid)")
	_, err := apidb.Migrate(ctx, path, 0)
	wantError(t, "an upgrade that fails", err, apidb.ErrSchema)
	testproc.ErrorHas(t, err, "step 2", "the error does not say which step failed: %v")
	if has, _, err := apidb.Version(ctx, path); err != nil || has != 1 {
		t.Errorf("the database has had %d steps, %v", has, err)
	}
	if got := ask(t, path,
		"SELECT COUNT(*) FROM pragma_table_info('instance_mappings') WHERE name = 'queued_for_delete'"); got[0] != "0" {
		t.Error("half of the step is there")
	}
	execute(t, path, "DROP TABLE other")
	if had, err := apidb.Migrate(ctx, path, 0); err != nil || had != 1 {
		t.Errorf("trying again: %d, %v", had, err)
	}
}

func TestMigrate(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	path := filepath.Join(t.TempDir(), "api.db")
	_, knows, err := apidb.Version(ctx, path)
	wantError(t, "the version of what is not there", err, fs.ErrNotExist)
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Error("asking for the version made the file")
	}
	must(t, os.WriteFile(path, nil, 0o600))
	if has, _, err := apidb.Version(ctx, path); err != nil || has != 0 {
		t.Errorf("an empty file has had %d steps, %v", has, err)
	}
	shut(t, open(t, path, apidb.Options{})) // is made whole
	if has, _, err := apidb.Version(ctx, path); err != nil || has != knows {
		t.Errorf("it has had %d steps, %v", has, err)
	}
	if had, err := apidb.Migrate(ctx, path, 0); err != nil || had != knows {
		t.Errorf("nothing to do: %d, %v", had, err)
	}
	_, err = apidb.Migrate(ctx, path, 1)
	wantError(t, "going back", err, apidb.ErrSchema)
	_, err = apidb.Migrate(ctx, path, knows+1)
	wantError(t, "a step that there is not", err, apidb.ErrSchema)
}

// TestNewerSchema: the database of a newer program is refused by all that write, and its version
// can be read.
func TestNewerSchema(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	path := filepath.Join(t.TempDir(), "api.db")
	shut(t, open(t, path, apidb.Options{}))
	execute(t, path, "PRAGMA user_version = 99")
	_, err := apidb.Open(ctx, path, apidb.Options{})
	wantError(t, "opening", err, apidb.ErrSchema)
	testproc.ErrorHas(t, err, "newer program", "the error does not say that a newer program was here: %v")
	_, err = apidb.OpenAndUpgrade(ctx, path, apidb.Options{})
	wantError(t, "upgrading", err, apidb.ErrSchema)
	if has, _, err := apidb.Version(ctx, path); err != nil || has != 99 {
		t.Errorf("version %d, %v", has, err)
	}
}
