// SPDX-License-Identifier: Apache-2.0

package sqlite_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/apidb/sqlite"
)

// TestOneDecision: several schedulers that do not know of each other and the owner, in several processes, at the same server. However
// they interleave, at most one cell wins, exactly one of placing and abandoning wins, and everybody is told how it is.
func TestOneDecision(t *testing.T) {
	path := filepath.Join(t.TempDir(), "api.db")
	left, right := open(t, path, sqlite.Options{}), open(t, path, sqlite.Options{})
	defer shut(t, left)
	defer shut(t, right)
	withCells(t, left, 3)
	round := 0
	rapid.Check(t, func(t *rapid.T) {
		round++
		uuid := fmt.Sprint("server", round)
		must(t, left.CreateServers(ctx, []apidb.NewServer{server(uuid, "p")}, nil))
		// Each scheduler tries cells one after the other, as after a failed insert; it may end the build when it has won.
		type actor struct {
			store  *sqlite.Store
			cells  []int
			builds bool
		}
		var schedulers []actor
		for range rapid.IntRange(1, 3).Draw(t, "schedulers") {
			schedulers = append(schedulers, actor{
				store: rapid.SampledFrom([]*sqlite.Store{left, right}).Draw(t, "process"),
				cells: rapid.SliceOfN(rapid.IntRange(0, 3), 1, 2).Draw(t, "cells"), builds: rapid.Bool().Draw(t, "builds"),
			})
		}
		owners := rapid.IntRange(0, 2).Draw(t, "owners")

		var mu sync.Mutex
		wins := map[string]bool{}
		var gone, abandoned, refused int
		var problems []error
		said := func(f func()) { mu.Lock(); defer mu.Unlock(); f() }
		var wg sync.WaitGroup
		for _, a := range schedulers {
			wg.Go(func() {
				for _, cell := range a.cells {
					claim := a.store.Claim(ctx, apidb.Claim{InstanceUUID: uuid, NodeUUID: "n", CellUUID: cellUUID(cell)})
					err := a.store.Place(ctx, uuid, cellUUID(cell))
					said(func() {
						switch {
						case err == nil:
							wins[cellUUID(cell)] = true
						case errors.Is(err, apidb.ErrGone):
							gone++
						case !errors.Is(err, apidb.ErrPlaced):
							problems = append(problems, err)
						}
						if claim != nil && !errors.Is(claim, apidb.ErrGone) && !errors.Is(claim, apidb.ErrPlaced) {
							problems = append(problems, claim)
						}
					})
					if err == nil && a.builds {
						if err := a.store.Built(ctx, uuid); err != nil {
							said(func() { problems = append(problems, err) })
						}
					}
				}
			})
		}
		for range owners {
			wg.Go(func() {
				err := right.AbandonBuild(ctx, uuid)
				said(func() {
					switch {
					case err == nil:
						abandoned++
					case errors.Is(err, apidb.ErrPlaced):
						refused++
					case !errors.Is(err, apidb.ErrNotFound):
						problems = append(problems, err)
					}
				})
			})
		}
		wg.Wait()

		for _, err := range problems {
			t.Errorf("unexpected: %v", err)
		}
		if len(wins)+abandoned != 1 {
			t.Fatalf("placed in %v and abandoned %d times: not one decision", wins, abandoned)
		}
		m, err := left.Mapping(ctx, uuid)
		must(t, err)
		if abandoned == 1 {
			if m.CellUUID != "" || !m.Queued() || refused > 0 {
				t.Fatalf("abandoned, and the mapping is %+v; %d owners were told that it is placed", m, refused)
			}
			if _, err := left.BuildRequest(ctx, uuid); !errors.Is(err, apidb.ErrNotFound) {
				t.Fatalf("abandoned, and the build request: %v", err)
			}
		} else if !wins[m.CellUUID] || m.Queued() || gone > 0 || refused != owners {
			t.Fatalf("placed in %v, and the mapping is %+v; %d were told that it is gone, %d of %d owners that it is placed", wins, m, gone, refused, owners)
		}
	})
}

// TestOpenAtOnce: several processes make a database at the same moment, and all have it whole.
func TestOpenAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "api.db")
	const n = 8
	var wg sync.WaitGroup
	stores := make([]*sqlite.Store, n)
	errs := make([]error, n)
	for i := range n {
		wg.Go(func() { stores[i], errs[i] = sqlite.Open(ctx, path, sqlite.Options{BusyTimeout: time.Minute}) })
	}
	wg.Wait()
	for i, s := range stores {
		if errs[i] != nil {
			t.Errorf("process %d: %v", i, errs[i])
			continue
		}
		must(t, s.SetQuotas(ctx, fmt.Sprint("p", i), apidb.QuotaSet{"cores": int64(i)}))
	}
	for i, s := range stores {
		if s == nil {
			continue
		}
		if q, err := s.Quotas(ctx, fmt.Sprint("p", (i+1)%n)); err != nil || q["cores"] != int64((i+1)%n) {
			t.Errorf("process %d reads %v, %v of what its neighbour wrote", i, q, err)
		}
		shut(t, s)
	}
}

// TestLocksAreKept: whatever else this process does with the file, its shared lock on it stays, by which other processes know that it is in use;
// and one that comes and goes does not take the log for abandoned.
func TestLocksAreKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "api.db")
	s := open(t, path, sqlite.Options{})
	defer shut(t, s)
	must(t, s.SetQuotas(ctx, "before", apidb.QuotaSet{"cores": 1}))
	link := filepath.Join(t.TempDir(), "link.db")
	must(t, os.Symlink(path, link))
	for what, do := range openers {
		must(t, do(path))
		must(t, do(link))
		if !locked(t, path) {
			t.Errorf("after %s the file is not locked any more", what)
		}
		cmd := exec.CommandContext(t.Context(), os.Args[0]) //nolint:gosec // this very binary
		cmd.Env = append(os.Environ(), childEnv+"=open|"+path)
		if output, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, output)
		}
		if _, err := os.Stat(path + "-wal"); err != nil {
			t.Fatalf("after %s here and a visit of another process the log is gone: %v", what, err)
		}
	}
	must(t, s.SetQuotas(ctx, "after", apidb.QuotaSet{"cores": 1}))
}

// locked says whether anybody holds SQLite's shared lock on the file, 510 bytes from 1 GiB + 2 on, as the kernel tells it.
func locked(t *testing.T, path string) bool {
	t.Helper()
	info, err := os.Stat(path)
	must(t, err)
	locks, err := os.ReadFile("/proc/locks")
	must(t, err)
	return strings.Contains(string(locks), fmt.Sprintf(":%d 1073741826 ", info.Sys().(*syscall.Stat_t).Ino))
}
