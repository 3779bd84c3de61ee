// SPDX-License-Identifier: Apache-2.0

package main

import (
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/store"
	"github.com/compute-agent/compute-agent/placement/transactor"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/placementtest"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// previous makes a database as the program left it before internal/sqldb was written, when it was
// killed: the second half of what it wrote is in the write-ahead log only.
func previous(t *testing.T, name string) (path string) {
	t.Helper()
	dir := t.TempDir()
	for _, part := range []string{"", "-wal", "-lock"} {
		packed, err := os.Open(filepath.Join("testdata", "previous", name+part+".gz"))
		if os.IsNotExist(err) && part != "" {
			continue // not all of them had one
		}
		check(t, err)
		defer func() { check(t, packed.Close()) }()
		unpacked := testproc.Try(gzip.NewReader(packed)).Or(t)
		data := testproc.Try(io.ReadAll(unpacked)).Or(t)
		check(t, os.WriteFile(filepath.Join(dir, name+part), data, 0o600))
	}
	return filepath.Join(dir, name)
}

// again runs a test on a database as it was, and on what the test made of it.
func again(t *testing.T, name string, use func(t *testing.T, path string, made bool)) {
	t.Helper()
	path := previous(t, name)
	use(t, path, false)
	use(t, path, true)
}

func TestPreviousPlacement(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const (
		host  = "11111111-1111-4111-8111-111111111111"
		numa  = "22222222-2222-4222-8222-222222222222"
		group = "33333333-3333-4333-8333-333333333333"
		guest = "44444444-4444-4444-8444-444444444444"
		next  = "55555555-5555-4555-8555-555555555555"
	)
	again(t, "placement.db", func(t *testing.T, path string, made bool) {
		kept := testproc.Try(store.Open(t.Context(), path, store.Options{})).Or(t)
		l := testproc.Try(transactor.Open(t.Context(), kept, transactor.Options{})).Or(t)
		defer func() { check(t, l.Close()) }()
		if found, err := kept.Schema(t.Context()); err != nil || found.NeedsUpgrade() || found.IsNewer() {
			t.Errorf("its schema is %+v, %v", found, err)
		}
		got := testproc.Try(placementtest.DumpOf(l.Current())).Or(t)
		h, n := got.Providers[host], got.Providers[numa]
		if h.Name != "host" || n.Name != "numa" || n.Parent != host || !slices.Equal(h.Aggregates, []string{group}) ||
			!slices.Equal(n.Traits, []string{"CUSTOM_FAST"}) ||
			h.Inventories["VCPU"].Total != 8 || n.Inventories["CUSTOM_GPU"].Total != 2 {
			t.Errorf("the providers are %+v and %+v", h, n)
		}
		held := providertree.ProviderResources{host: {"VCPU": 4}, numa: {"CUSTOM_GPU": 1}}
		if c := got.Consumers[guest]; c.Project != "q" || cmp.Diff(held, c.Allocations) != "" {
			t.Errorf("the guest has %+v", c)
		}
		if _, has := got.Consumers[next]; has != made {
			t.Errorf("the guest that was made here is there: %v", has)
		}
		if made {
			return
		}
		testproc.Try(l.Update(t.Context(), func(tx *ledger.Tx) error {
			return tx.ReplaceAllocations(
				[]ledger.ConsumerAllocations{{Consumer: next, Project: "q", User: "u",
					Resources: providertree.ProviderResources{host: {"VCPU": 4}}}})
		})).Or(t)
	})
}

func TestPreviousAPIDatabase(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const cell = "00000001-0000-0000-0000-000000000000"
	small := cellwire.Flavor{ID: "f1", Flavor: plugins.Flavor{Name: "small", VCPUs: 2, MemoryMB: 512, RootGB: 1,
		ExtraSpecs: map[string]string{"trait:CUSTOM_A": "required"}}}
	again(t, "api.db", func(t *testing.T, path string, made bool) {
		db, err := apidb.OpenAndUpgrade(t.Context(), path, apidb.Options{})
		check(t, err)
		defer func() { check(t, db.Close()) }()
		if flavor, err := db.Flavor(t.Context(), "f1"); err != nil || cmp.Diff(small, flavor.Flavor) != "" {
			t.Errorf("the flavor is %+v, %v", flavor, err)
		}
		m := testproc.Try(db.Mapping(t.Context(), "one")).Or(t)
		if m.CellUUID != cell || m.ProjectID != "p" {
			t.Errorf("the mapping is %+v", m)
		}
		if spec, err := db.RequestSpec(t.Context(), "one"); err != nil ||
			cmp.Diff(small, spec.Flavor) != "" || spec.ProjectID != "p" {
			t.Errorf("the specification is %+v, %v", spec, err)
		}
		build := testproc.Try(db.BuildRequest(t.Context(), "two")).Or(t)
		if build.Name != "server two" || cmp.Diff(small, build.Flavor) != "" {
			t.Errorf("the build request is %+v", build)
		}
		m, err = db.Mapping(t.Context(), "two")
		if check(t, err); (m.CellUUID == cell) != made {
			t.Errorf("the mapping of the server that is placed here is %+v", m)
		}
		if !made {
			check(t, db.Place(t.Context(), "two", cell))
		}
	})
}

// TestPreviousUpgrade: the API database of a build before that one, which lacks steps of the
// schema.
func TestPreviousUpgrade(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	path := previous(t, "api-first.db")
	if db, err := apidb.Open(t.Context(), path, apidb.Options{}); err == nil ||
		!strings.Contains(err.Error(), "it has had 1 of ") {
		t.Fatalf("opened without the missing steps: %v, %v", db, err)
	}
	db := testproc.Try(apidb.OpenAndUpgrade(t.Context(), path, apidb.Options{})).Or(t)
	defer func() { check(t, db.Close()) }()
	if has, knows, err := db.SchemaVersion(t.Context()); err != nil || has != knows {
		t.Errorf("it has had %d of %d steps, %v", has, knows, err)
	}
	for _, uuid := range []string{"old1", "old2"} {
		if m, err := db.Mapping(t.Context(), uuid); err != nil || m.ProjectID != "p" || m.QueuedForDelete != nil {
			t.Errorf("the mapping of %s is %+v, %v", uuid, m, err)
		}
	}
	check(t, db.SetQueued(t.Context(), map[string]bool{"old1": true}))
	if m, err := db.Mapping(t.Context(), "old1"); err != nil || m.QueuedForDelete == nil || !*m.QueuedForDelete {
		t.Errorf("the column of the new step is not used: %+v, %v", m, err)
	}
}

func TestPreviousCell(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	moment := celldb.Moment{Now: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC), DownTime: time.Minute}
	again(t, "cell.db", func(t *testing.T, path string, made bool) {
		db := testproc.Try(celldb.Open(t.Context(), path, "cell1", celldb.Options{})).Or(t)
		defer func() { check(t, db.Close()) }()
		if info, err := db.Info(t.Context()); err != nil ||
			info.Name != "cell1" || info.Epoch != "6d2aaaec-ea0f-4ea0-849d-4a26cc927ed9" || info.Revision < 5 {
			t.Errorf("it is %+v, %v", info, err)
		}
		flavor := plugins.Flavor{VCPUs: 1, MemoryMB: 128}
		for _, id := range []string{"1", "2"} {
			got, err := db.Server(t.Context(), "5e000000-0000-4000-8000-00000000000"+id, moment)
			if err != nil || got.Name != "server-"+id || cmp.Diff(flavor, got.Flavor.Flavor) != "" {
				t.Errorf("server %s is %+v, %v", id, got, err)
			}
		}
		_, err := db.Server(t.Context(), "5e000000-0000-4000-8000-000000000003", moment)
		if (err == nil) != made {
			t.Errorf("the server that is made here: %v", err)
		}
		if made {
			return
		}
		server := cellwire.Server{UUID: "5e000000-0000-4000-8000-000000000003", ProjectID: "p",
			Name: "server-3", Host: "h1", Node: "n1",
			VMState: cellwire.VMBuilding, TaskState: cellwire.TaskSpawning,
			Flavor: cellwire.Flavor{ID: "1", Flavor: flavor}, CreatedAt: moment.Now}
		testproc.Try(db.Insert(t.Context(), server, moment)).Or(t)
		testproc.Try(db.Release(t.Context(), server.UUID, moment)).Or(t)
	})
}
