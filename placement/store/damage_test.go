// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/store"
	"github.com/compute-agent/compute-agent/placement/transactor"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/placementtest"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// filled makes a database with providers and claims, and closes it in good order.
func filled(t *testing.T, path string) {
	t.Helper()
	prepare(t, path)
	l := open(t, path)
	for n := range 40 {
		testproc.Try(l.Update(ctx, func(tx *ledger.Tx) error {
			return tx.ReplaceAllocations(
				[]ledger.ConsumerAllocations{{Consumer: fmt.Sprint("consumer", n), Project: "p", User: "u",
					Resources: providertree.ProviderResources{"shared": {"VCPU": 1}}}})
		})).Or(t)
	}
	closeLedger(t, l)
}

func copyFile(t *testing.T, to, from string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, 0o600)
	}
	testproc.Check(t, err)
}

// TestEveryPage damages one page after the other. Either the damage is seen when the state is
// loaded, and the error names the file and what to do; or the page holds nothing that is loaded,
// and what is shown is true.
func TestEveryPage(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	whole := filepath.Join(t.TempDir(), "placement.db")
	filled(t, whole)
	l := open(t, whole)
	want := testproc.Try(placementtest.DumpOf(l.Current())).Or(t)
	closeLedger(t, l)
	info := testproc.Try(os.Stat(whole)).Or(t)
	const page = 4096
	noise := make([]byte, page)
	for i := range noise {
		noise[i] = byte(i*31 + 0xA7)
	}
	seen := 0
	for at := int64(page); at < info.Size(); at += page {
		path := filepath.Join(t.TempDir(), "placement.db")
		copyFile(t, path, whole)
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err == nil {
			_, err = f.WriteAt(noise, at)
			err = errors.Join(err, f.Close())
		}
		testproc.Check(t, err)
		s, err := store.Open(ctx, path, store.Options{})
		var l *transactor.Ledger
		if err == nil {
			l, err = transactor.Open(ctx, s, transactor.Options{})
		}
		if err != nil {
			seen++
			if !errors.Is(err, engine.ErrCorrupt) || !strings.Contains(err.Error(), path) ||
				!strings.Contains(err.Error(), "restore a backup") {
				t.Errorf("page %d: %v", at/page+1, err)
			}
			continue
		}
		got := testproc.Try(placementtest.DumpOf(l.Current())).Or(t)
		if len(got.Consumers) != len(want.Consumers) || got.Providers["shared"].Used["VCPU"] != 40 {
			t.Errorf("page %d: the damage was not seen, and %d consumers hold %v",
				at/page+1, len(got.Consumers), got.Providers["shared"].Used)
		}
		closeLedger(t, l)
	}
	if seen == 0 {
		t.Error("no damage was seen")
	}
}

// TestOlderDatabaseIsRefused: a database that is older than what was acknowledged from it is
// refused, until the operator says that this is meant; one that is only newer, or was never
// counted, is not.
func TestOlderDatabaseIsRefused(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	path := filepath.Join(t.TempDir(), "placement.db")
	filled(t, path)
	lock := path + "-lock"
	older := path + ".old"
	copyFile(t, older, path)
	early := testproc.Try(os.ReadFile(lock)).Or(t)
	l := open(t, path)
	testproc.Try(l.Update(ctx, func(tx *ledger.Tx) error { _, _, err := tx.CreateTrait("CUSTOM_LATE"); return err })).
		Or(t)
	closeLedger(t, l)
	newer := path + ".new"
	copyFile(t, newer, path)

	copyFile(t, path, older)
	_, err := store.Open(ctx, path, store.Options{})
	if !errors.Is(err, engine.ErrLost) || !strings.Contains(err.Error(), path) ||
		!strings.Contains(err.Error(), "remove placement.db-lock") {
		t.Errorf("an older copy: got %v, want ErrLost", err)
	}
	for name, content := range map[string][]byte{"written by an earlier server": early, "empty": nil,
		"nonsense": []byte(strings.Repeat("x", 30)), "cut": early[:7]} {
		testproc.Check(t, os.WriteFile(lock, content, 0o600))
		copyFile(t, path, newer)
		l := open(t, path)
		if _, found := l.Current().Trait("CUSTOM_LATE"); !found {
			t.Errorf("%s: what was written last is missing", name)
		}
		closeLedger(t, l)
	}
	copyFile(t, path, older)
	testproc.Check(t, os.Remove(lock))
	l = open(t, path)
	if _, found := l.Current().Trait("CUSTOM_LATE"); found {
		t.Error("the older copy is not older")
	}
	closeLedger(t, l)
	testproc.Check(t, os.Truncate(path, 0))
	// What a new lock found is known from then on, also when nothing was written since.
	if _, err := store.Open(ctx, path, store.Options{}); !errors.Is(err, engine.ErrLost) {
		t.Errorf("a database cut to nothing after a restore: got %v, want ErrLost", err)
	}
	testproc.Check(t, os.Remove(lock))
	if _, err := store.Open(ctx, path, store.Options{}); !errors.Is(err, engine.ErrLost) ||
		!strings.Contains(err.Error(), "run: rm -f "+sqldb.Marker(path)) {
		t.Errorf("an emptied file without a lock: got %v, want ErrLost with the command that says that it is meant",
			err)
	}
	testproc.Check(t, os.Remove(sqldb.Marker(path)))
	l = open(t, path)
	testproc.Try(l.Update(ctx, func(tx *ledger.Tx) error { _, _, err := tx.CreateTrait("CUSTOM_T"); return err })).Or(t)
	closeLedger(t, l)
	testproc.Check(t, os.Truncate(path, 0))
	testproc.Try(store.Open(ctx, path, store.Options{})).ErrorIs(t, engine.ErrLost, "an emptied file: got %v")
	if info, err := os.Stat(path); err != nil || info.Size() != 0 {
		t.Errorf("the refused file was written to: %v, %v", info, err)
	}
}

// TestDamageFoundLater: a page that is not needed for loading is damaged while the server runs. The
// write that meets it fails, is not acknowledged, and reads go on.
func TestDamageFoundLater(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	path := filepath.Join(t.TempDir(), "placement.db")
	filled(t, path)
	f := testproc.Try(os.OpenFile(path, os.O_RDWR, 0)).Or(t)
	defer func() { testproc.NoError(t, f.Close()) }()
	l := open(t, path)
	info := testproc.Try(f.Stat()).Or(t)
	// All pages but those that say what tables there are.
	testproc.Try(io.Copy(io.NewOffsetWriter(f, 8*4096),
		strings.NewReader(strings.Repeat("\xA7\x13", int(info.Size()-8*4096)/2)))).Or(t)
	before := l.Current()
	_, err := l.Update(ctx, func(tx *ledger.Tx) error {
		return tx.ReplaceAllocations(
			[]ledger.ConsumerAllocations{{Consumer: "late",
				Project: "p", User: "u", Resources: providertree.ProviderResources{"shared": {"VCPU": 1}}}})
	})
	testproc.ErrorIs(t, err, engine.ErrCorrupt, "got %v")
	if l.Current() != before {
		t.Error("a refused write was published")
	}
	if err := l.Close(); err != nil {
		t.Log(err) // it may say again that the file is damaged
	}
}

// TestFileRemovedWhileOpen: no write is acknowledged into files that are gone, reading goes on,
// writes work again when the files are back, and the next start without them does not begin with an
// empty database.
func TestFileRemovedWhileOpen(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := filepath.Join(t.TempDir(), "state")
	path := filepath.Join(dir, "placement.db")
	s := testproc.Try(store.Open(ctx, path, store.Options{})).Or(t)
	l := testproc.Try(transactor.Open(ctx, s, transactor.Options{})).Or(t)
	add := func(name string) error {
		_, err := l.Update(ctx, func(tx *ledger.Tx) error { _, _, err := tx.CreateTrait(name); return err })
		return err
	}
	testproc.Check(t, errors.Join(add("CUSTOM_A"), s.Problem()))
	testproc.Check(t, os.Rename(dir, dir+"-away"))
	if err := add("CUSTOM_B"); !errors.Is(err, engine.ErrReplaced) || !errors.Is(err, ledger.ErrUnavailable) ||
		!errors.Is(s.Problem(), engine.ErrReplaced) {
		t.Errorf("got %v, want ErrReplaced, which is an ErrUnavailable; the store says %v", err, s.Problem())
	}
	if now, err := l.Snapshot(ctx); err != nil {
		t.Errorf("reading: %v", err)
	} else if _, found := now.Trait("CUSTOM_B"); found {
		t.Error("a refused write is shown")
	}
	testproc.Check(t, os.Rename(dir+"-away", dir))
	testproc.NoErrorf(t, errors.Join(add("CUSTOM_C"), s.Problem()), "with the files back")
	closeLedger(t, l)
	files := testproc.Try(filepath.Glob(path + "*")).Or(t)
	for _, file := range files {
		testproc.Check(t, os.Remove(file))
	}
	for range 2 {
		if _, err := store.Open(ctx, path, store.Options{}); !errors.Is(err, engine.ErrLost) {
			t.Errorf("a start without the files: got %v, want ErrLost", err)
		}
	}
}
