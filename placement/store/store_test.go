// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/store"
	"github.com/compute-agent/compute-agent/placement/transactor"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/placementtest"
	"github.com/compute-agent/compute-agent/test/testproc"
)

var ctx = context.Background()

// fatal is what *testing.T and *rapid.T share.
type fatal interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// open opens a database: a file for this process alone, one of servers as one of several.
func open(t fatal, name string) *transactor.Ledger {
	t.Helper()
	s, err := store.Open(ctx, name, store.Options{})
	return opened(t, s, err)
}

// openPatiently is open of a server that has many faults in a row, by chance.
func openPatiently(t fatal, name string) *transactor.Ledger {
	t.Helper()
	s, err := store.Open(ctx, name, store.Options{Failover: testproc.Patience})
	return opened(t, s, err)
}

func opened(t fatal, s *store.Store, err error) *transactor.Ledger {
	t.Helper()
	testproc.Check(t, err)
	l, err := transactor.Open(ctx, s, transactor.Options{})
	testproc.Check(t, err)
	return l
}

func closeLedger(t fatal, l *transactor.Ledger) {
	t.Helper()
	testproc.Check(t, l.Close())
}

// TestNamesThatDifferInSpacesAtTheEnd: they are one name on every engine, as for OpenStack's
// Placement on MariaDB and MySQL. A provider is shown by the name that it was given.
func TestNamesThatDifferInSpacesAtTheEnd(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	each(t, func(t *testing.T, e testEngine) {
		name := e.fresh(t)
		l := open(t, name)
		longest := "node" + strings.Repeat(" ", 196)
		create := func(name string) error {
			_, err := l.Update(ctx, func(tx *ledger.Tx) error {
				_, err := tx.CreateProvider(
					ledger.NewProvider{UUID: fmt.Sprintf("%x", sha256.Sum256([]byte(name)))[:32], Name: name})
				return err
			})
			return err
		}
		rename := func(from, to string) error {
			_, err := l.Update(ctx, func(tx *ledger.Tx) error {
				p, ok := tx.ProviderByName(from)
				if !ok {
					return fmt.Errorf("there is no %q", from)
				}
				_, err := tx.UpdateProvider(p.UUID, ledger.ProviderUpdate{Name: to})
				return err
			})
			return err
		}
		for _, name := range []string{"node", " node", "other", "日本 ", " "} {
			testproc.NoErrorf(t, create(name), "create %q", name)
		}
		for _, name := range []string{"node ", longest, " node  ", "日本", "   "} {
			if err := create(name); ledger.KindOf(err) != ledger.DuplicateName {
				t.Errorf("create %q: %v", name, err)
			}
		}
		for _, to := range []string{"node ", "node", longest} {
			testproc.NoErrorf(t, rename("node   ", to), "rename to %q", to)
			if err := rename("other", "node"); ledger.KindOf(err) != ledger.DuplicateName {
				t.Errorf("with %q, rename another to node: %v", to, err)
			}
			if p, ok := l.Current().ProviderByName("node"); !ok || p.Name != to {
				t.Errorf("node is found as %+v, want %q", p, to)
			}
		}
		before := l.Current()
		closeLedger(t, l)
		after := open(t, name)
		defer closeLedger(t, after)
		same(t, "written -, loaded +", before, after.Current())
	})
}

// same compares all that two snapshots show, numbers and times included.
func same(t fatal, what string, a, b *ledger.Snapshot) {
	t.Helper()
	pa := testproc.Try(placementtest.DumpOf(a)).Or(t)
	pb := testproc.Try(placementtest.DumpOf(b)).Or(t)
	if diff := cmp.Diff(pa, pb, cmpopts.EquateEmpty()); diff != "" {
		t.Fatalf("%s:\n%s", what, diff)
	}
	if diff := cmp.Diff(placementtest.Rows(a), placementtest.Rows(b)); diff != "" {
		t.Fatalf("%s:\n%s", what, diff)
	}
	if a.Version() != b.Version() {
		t.Fatalf("%s: versions %d and %d", what, a.Version(), b.Version())
	}
}

// roundsOnServers is how often a property is checked on a database of servers: making one takes as
// long as many rounds.
const roundsOnServers = 6

// rounds checks a property with a fresh database each time, on all engines.
func rounds(t *testing.T, property func(rt *rapid.T, e testEngine, name string)) {
	t.Helper()
	each(t, func(t *testing.T, e testEngine) {
		done, failed := 0, false
		rapid.Check(t, func(rt *rapid.T) {
			if e.shared && done >= roundsOnServers && !failed {
				return
			}
			was := failed
			failed = true // if the property panics, as it does when it fails
			property(rt, e, e.fresh(t))
			failed = was
			done++
		})
	})
}

// TestRoundTrip: after random writes through two servers of one database, taking
// turns as chance wants, what each shows, what a third loads and what the
// model says are the same.
func TestRoundTrip(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rounds(t, func(rt *rapid.T, e testEngine, name string) {
		names := []string{name}
		if e.shared {
			names = append(names, name)
		}
		roundTrip(rt, names)
	})
}

// roundTrip writes through a server for each name of one database.
func roundTrip(rt *rapid.T, names []string) {
	var servers []*transactor.Ledger
	for _, name := range names {
		servers = append(servers, open(rt, name))
	}
	model := placementtest.NewModel()
	do := func(op placementtest.Op, server int) {
		want := model.Apply(op)
		_, err := servers[server].Update(ctx, op.Run)
		if err != nil && ledger.KindOf(err) == 0 || !placementtest.SameRefusal(want, ledger.KindOf(err)) {
			rt.Fatalf("%+v: server %d says %v, the model %q", op, server, err, want)
		}
	}
	for _, op := range placementtest.SetupOps() {
		do(op, 0)
	}
	for range rapid.IntRange(5, 40).Draw(rt, "writes") {
		do(placementtest.DrawOp(rt, model), rapid.IntRange(0, len(servers)-1).Draw(rt, "server"))
	}
	var shown []*ledger.Snapshot
	for _, l := range servers {
		s := testproc.Try(l.Snapshot(ctx)).Or(rt)
		shown = append(shown, s)
	}
	for _, l := range servers {
		closeLedger(rt, l)
	}
	last := open(rt, names[0])
	defer closeLedger(rt, last)
	for i, s := range shown {
		same(rt, fmt.Sprintf("server %d -, loaded +", i), s, last.Current())
	}
	got := testproc.Try(placementtest.DumpOf(last.Current())).Or(rt)
	if diff := cmp.Diff(model.Dump(), got, cmpopts.EquateEmpty()); diff != "" {
		rt.Fatalf("model -, servers +:\n%s", diff)
	}
}

// TestDeletedAndMadeAgain: a class and a trait that another server deleted and made again, with new
// numbers, are there.
func TestDeletedAndMadeAgain(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	eachShared(t, func(t *testing.T, e testEngine) {
		name := e.fresh(t)
		one, other := open(t, name), open(t, name)
		defer closeLedger(t, one)
		defer closeLedger(t, other)
		update := func(l *transactor.Ledger, f func(*ledger.Tx) error) {
			t.Helper()
			testproc.Try(l.Update(ctx, f)).Or(t)
		}
		makeBoth := func(tx *ledger.Tx) error {
			_, _, err := tx.CreateTrait("CUSTOM_T")
			_, _, err2 := tx.CreateClass("CUSTOM_C")
			return errors.Join(err, err2)
		}
		update(one, makeBoth)
		testproc.Try(other.Snapshot(ctx)).Or(t)
		update(one, func(tx *ledger.Tx) error {
			return errors.Join(tx.DeleteTrait("CUSTOM_T"),
				tx.DeleteClass("CUSTOM_C"))
		})
		update(one, makeBoth)
		first := testproc.Try(one.Snapshot(ctx)).Or(t)
		second := testproc.Try(other.Snapshot(ctx)).Or(t)
		if _, found := second.Trait("CUSTOM_T"); !found {
			t.Error("the trait is missing at the other server")
		}
		if _, found := second.Class("CUSTOM_C"); !found {
			t.Error("the class is missing at the other server")
		}
		same(t, "one -, other +", first, second)
	})
}

func TestFilesArePrivate(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	path := filepath.Join(t.TempDir(), "state", "placement.db")
	defer closeLedger(t, open(t, path))
	for name, want := range map[string]os.FileMode{path: 0o600, path + "-wal": 0o600,
		path + "-lock": 0o600, filepath.Dir(path): 0o700} {
		info := testproc.Try(os.Stat(name)).Or(t)
		testproc.Equal(t, info.Mode().Perm(), want, "%s has mode %o", name)
	}
}

// TestOwner: what root does to the database of a service leaves no file behind that the service's
// user cannot open.
func TestOwner(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	path := filepath.Join(t.TempDir(), "placement.db")
	const owner = 65534
	testproc.Check(t, errors.Join(os.WriteFile(path, nil, 0o600), os.Chown(path, owner, owner)))
	l := open(t, path)
	for _, suffix := range []string{"", "-wal", "-lock"} {
		info := testproc.Try(os.Stat(path + suffix)).Or(t)
		if is := info.Sys().(*syscall.Stat_t); is.Uid != owner || is.Gid != owner {
			t.Errorf("%s belongs to %d:%d", info.Name(), is.Uid, is.Gid)
		}
	}
	closeLedger(t, l)
}

func TestStandardNames(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	each(t, func(t *testing.T, e testEngine) {
		name := e.fresh(t)
		l := open(t, name)
		for id, name := range ledger.StandardClasses() {
			if c, ok := l.Current().Class(name); !ok || c.ID != int64(id) || !c.Standard() {
				t.Errorf("standard class %s is %+v, want number %d", name, c, id)
			}
		}
		if got, want := len(l.Current().Traits()), len(ledger.StandardTraits()); got != want {
			t.Errorf("%d traits, want %d", got, want)
		}
		version := l.Current().Version()
		closeLedger(t, l)
		l = open(t, name)
		defer closeLedger(t, l)
		if l.Current().Version() != version {
			t.Errorf("opening again wrote something: version %d, was %d", l.Current().Version(), version)
		}
	})
}

func TestBadFiles(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	t.Run("not a database", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "placement.db")
		text := []byte("# this is a letter, not a database\n")
		testproc.Check(t, os.WriteFile(path, text, 0o600))
		testproc.Try(store.Open(ctx, path, store.Options{})).ErrorIs(t, engine.ErrNotDatabase, "got %v")
		if after, err := os.ReadFile(path); err != nil || !slices.Equal(after, text) {
			t.Errorf("the file was changed: %q, %v", after, err)
		}
	})
	t.Run("damaged", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "placement.db")
		closeLedger(t, open(t, path))
		f := testproc.Try(os.OpenFile(path, os.O_RDWR, 0)).Or(t)
		// All but the first page is noise.
		info := testproc.Try(f.Stat()).Or(t)
		noise := make([]byte, info.Size()-4096)
		for i := range noise {
			noise[i] = byte(i*7 + 3)
		}
		testproc.Try(f.WriteAt(noise, 4096)).Or(t)
		testproc.Check(t, f.Close())
		s, err := store.Open(ctx, path, store.Options{})
		if err == nil {
			_, err = transactor.Open(ctx, s, transactor.Options{})
		}
		testproc.ErrorIs(t, err, engine.ErrCorrupt, "got %v")
	})
	t.Run("directory in the way", func(t *testing.T) {
		testproc.Try(store.Open(ctx, t.TempDir(), store.Options{})).ErrorIs(t, engine.ErrUnreachable, "got %v")
	})
	t.Run("no right to write", func(t *testing.T) {
		if os.Geteuid() == 0 {
			// Root may write where the mode forbids it; /proc refuses root too.
			if _, err := store.Open(ctx, "/proc/self/placement.db", store.Options{}); err == nil {
				t.Error("opened a database in /proc")
			}
			return
		}
		dir := t.TempDir()
		if err := os.Chmod(dir, 0o500); err != nil { // the point of the test
			t.Fatal(err)
		}
		if _, err := store.Open(ctx, filepath.Join(dir, "placement.db"),
			store.Options{}); !errors.Is(err, engine.ErrReadOnly) {
			t.Errorf("got %v, want ErrReadOnly", err)
		}
	})
	t.Run("newer schema", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "placement.db")
		closeLedger(t, open(t, path))
		execute(t, path, "INSERT INTO ledger_migrations (number) VALUES (999)")
		testproc.Try(store.Open(ctx, path, store.Options{})).ErrorIs(t, engine.ErrSchema, "got %v")
	})
	t.Run("the database of another program", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "keystone.db")
		execute(t, path, "CREATE TABLE alembic_version (version_num VARCHAR(32))", "CREATE TABLE user (id INTEGER)")
		before := testproc.Try(os.ReadFile(path)).Or(t)
		for range 2 { // The first try left nothing that makes the second succeed.
			_, err := store.ReadSchema(ctx, path)
			_, opening := store.Open(ctx, path, store.Options{})
			for _, err := range []error{err, opening} {
				if !errors.Is(err, engine.ErrSchema) ||
					!strings.Contains(err.Error(), `the table "alembic_version" and none of Placement's`) {
					t.Errorf("got %v, want ErrSchema and the name of a table", err)
				}
			}
		}
		after, err := os.ReadFile(path)
		left, _ := filepath.Glob(path + "?*")
		if err != nil || !bytes.Equal(before, after) || len(left) > 0 {
			t.Errorf("the file was changed (%v), or others were made: %v", err, left)
		}
	})
	t.Run("unknown Placement schema", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "placement.db")
		execute(t, path, "CREATE TABLE resource_providers (id INTEGER)",
			"CREATE TABLE alembic_version (version_num VARCHAR(32))",
			"INSERT INTO alembic_version VALUES ('b4ed3a175331')")
		if schema, err := store.ReadSchema(ctx, path); err != nil || schema.CanBeAdopted() {
			t.Errorf("got %+v, %v, want one that cannot be adopted", schema, err)
		}
		testproc.Try(store.Open(ctx, path, store.Options{})).ErrorIs(t, engine.ErrSchema, "got %v")
	})
}

// TestFullDisk: a database that cannot grow refuses the write, keeps the old
// state, and goes on when there is space again.
func TestFullDisk(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	path := filepath.Join(t.TempDir(), "placement.db")
	s := testproc.Try(store.Open(ctx, path, store.Options{MaxPages: 80})).Or(t)
	l := testproc.Try(transactor.Open(ctx, s, transactor.Options{})).Or(t)
	var full error
	for i := range 100 {
		before := l.Current()
		_, err := l.Update(ctx, func(tx *ledger.Tx) error {
			for k := range 100 {
				name := fmt.Sprintf("provider-%d-%d", i, k)
				if _, err := tx.CreateProvider(ledger.NewProvider{UUID: name, Name: name}); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			full = err
			if l.Current() != before {
				t.Error("a refused write was published")
			}
			break
		}
	}
	if !errors.Is(full, engine.ErrFull) || !errors.Is(full, ledger.ErrUnavailable) {
		t.Fatalf("got %v, want ErrFull, which is an ErrUnavailable", full)
	}
	closeLedger(t, l)
	other := open(t, path)
	defer closeLedger(t, other)
	same(t, "the full server -, loaded +", l.Current(), other.Current())
	if _, err := other.Update(ctx, func(tx *ledger.Tx) error {
		_, err := tx.CreateProvider(ledger.NewProvider{UUID: "late", Name: "late"})
		return err
	}); err != nil {
		t.Fatalf("with space, writing does not go on: %v", err)
	}
}

// TestForeignWriter: another process that does not know ledger_version, such as OpenStack
// Placement, changed a row. The write that builds on it notices, loads everything again and is
// decided again.
func TestForeignWriter(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	each(t, func(t *testing.T, e testEngine) {
		name := e.fresh(t)
		l := open(t, name)
		defer closeLedger(t, l)
		testproc.Try(l.Update(ctx, func(tx *ledger.Tx) error {
			_, err := tx.CreateProvider(ledger.NewProvider{UUID: "a", Name: "a"})
			return err
		})).Or(t)
		execute(t, name, "UPDATE resource_providers SET generation = 7")
		runs := 0
		_, err := l.Update(ctx, func(tx *ledger.Tx) error {
			runs++
			_, err := tx.SetTraits("a", 0, []string{"COMPUTE_NODE"})
			return err
		})
		if ledger.KindOf(err) != ledger.GenerationConflict || runs != 2 {
			t.Errorf("after %d runs: %v, want a generation conflict after 2", runs, err)
		}
	})
}

// TestFollowFromLongAgo: a server that was idle for so long that the changes
// are not kept any more loads everything, and shows the same.
func TestFollowFromLongAgo(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	eachShared(t, func(t *testing.T, e testEngine) {
		name := e.fresh(t)
		active, idle := open(t, name), open(t, name)
		defer closeLedger(t, active)
		defer closeLedger(t, idle)
		for _, op := range placementtest.SetupOps() {
			testproc.Try(active.Update(ctx, op.Run)).Or(t)
		}
		execute(t, name, "DELETE FROM ledger_changes WHERE version < (SELECT version FROM ledger_version)")
		s := testproc.Try(idle.Snapshot(ctx)).Or(t)
		same(t, "the active server -, the idle one +", active.Current(), s)
	})
}

// TestUUIDThatChanges: what one server gives a provider for a uuid, the others and the database
// have, in the tree and in allocations; and the old uuid is free in the same commit.
func TestUUIDThatChanges(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	each(t, func(t *testing.T, e testEngine) {
		name := e.fresh(t)
		server := open(t, name)
		write := func(fn func(*ledger.Tx) error) {
			t.Helper()
			testproc.Try(server.Update(ctx, fn)).Or(t)
		}
		write(func(tx *ledger.Tx) error {
			var errs []error
			for _, p := range []ledger.NewProvider{{UUID: "a", Name: "a"}, {UUID: "b", Name: "b", Parent: "a"},
				{UUID: "c", Name: "c", Parent: "b"}} {
				_, err := tx.CreateProvider(p)
				errs = append(errs, err)
			}
			vcpus := ledger.Inventory{Class: "VCPU", Total: 9, MinUnit: 1, MaxUnit: 9, StepSize: 1, AllocationRatio: 1}
			_, err := tx.AddInventory("b", vcpus)
			errs = append(errs, err, tx.ReplaceAllocations([]ledger.ConsumerAllocations{{
				Consumer: "guest", Project: "p", User: "u",
				Resources: map[string]providertree.Resources{"b": {"VCPU": 2}},
			}}))
			return errors.Join(errs...)
		})
		servers := []*transactor.Ledger{server}
		if e.shared {
			servers = append(servers, open(t, name))
		}
		write(func(tx *ledger.Tx) error {
			_, err := tx.ChangeUUID("b", "z")
			if err == nil {
				_, err = tx.CreateProvider(ledger.NewProvider{UUID: "b", Name: "node"})
			}
			return err
		})
		shown := make([]*ledger.Snapshot, 0, len(servers)+1)
		for _, l := range servers {
			shown = append(shown, testproc.Try(l.Snapshot(ctx)).Or(t))
		}
		for _, l := range servers {
			closeLedger(t, l)
		}
		again := open(t, name)
		defer closeLedger(t, again)
		for _, s := range append(shown, again.Current()) {
			same(t, "the server that wrote -, one that read +", shown[0], s)
			moved, _ := s.Provider("z")
			node, _ := s.Provider("b")
			if moved == nil || moved.Parent != "a" || node == nil || node.Name != "node" || s.Used(moved, "VCPU") != 2 {
				t.Errorf("the child is %+v, the node %+v", moved, node)
			}
		}
	})
}
