// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/lib/processes"
	"github.com/compute-agent/compute-agent/internal/sqldb/backup"
	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/store"
	"github.com/compute-agent/compute-agent/placement/transactor"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
	"github.com/compute-agent/compute-agent/test/world"
)

// servers are the Placement servers of a run.
type servers struct {
	urls    []*url.URL
	pids    []int // of given servers and their databases, whose use is measured
	started bool  // by this process, as all that is below it
}

// processes are those whose use is measured.
func (s *servers) processes(t *testing.T) (pids []int) {
	t.Helper()
	if !s.started {
		return s.pids
	}
	all := testproc.Try(processes.All()).Or(t)
	for _, p := range processes.Family(all, os.Getpid()) {
		if p.PID != os.Getpid() && p.State != 'Z' {
			pids = append(pids, p.PID)
		}
	}
	return pids
}

// usage is what was used so far, by the servers and by the fleet.
type usage struct {
	cpu, own            time.Duration
	memory              testproc.Memory
	connections, probes int64
}

func (f *fleet) usage(t *testing.T) usage {
	t.Helper()
	pids := f.servers.processes(t)
	return usage{
		cpu: testproc.Try(testproc.CPU(pids...)).Or(t), own: testproc.Try(testproc.CPU(os.Getpid())).Or(t),
		memory:      testproc.Try(testproc.MemoryOf(pids...)).Or(t),
		connections: f.connections.Load(), probes: f.probes.Load(),
	}
}

// given are the servers of -fleet.url.
func given(t *testing.T) *servers {
	t.Helper()
	s := &servers{}
	for address := range strings.SplitSeq(*serverURLs, ",") {
		s.add(t, strings.TrimSpace(address))
	}
	for word := range strings.SplitSeq(*serverPIDs, ",") {
		if word = strings.TrimSpace(word); word != "" {
			s.pids = append(s.pids, testproc.Try(strconv.Atoi(word)).Or(t))
		}
	}
	return s
}

func (s *servers) add(t *testing.T, address string) {
	t.Helper()
	s.urls = append(s.urls, testproc.Try(url.Parse(address)).Or(t))
}

// start starts n servers, on databases of their own unless dsn names one that they share. If
// loaded, the trees of their agents are in the databases first.
func start(t *testing.T, f *fleet, n int, dsn string, loaded bool) *servers {
	t.Helper()
	check(t, binaries.Build())
	s := &servers{started: true}
	measured := func(what string, load func() error) {
		t.Helper()
		begin := time.Now()
		check(t, load())
		t.Logf("%s: its trees are in it after %.1f s", what, time.Since(begin).Seconds())
	}
	if dsn != "" && loaded {
		measured("the database", func() error { return loadShared(t, dsn, f.agents) })
	}
	for i := range n {
		state := filepath.Join(t.TempDir(), "state")
		check(t, os.Mkdir(state, 0o700))
		args := []string{"placement", "serve", "--state-dir", state}
		if dsn != "" {
			args = append(args, "--database", dbservers.WithPasswordFile(t, dsn))
		} else if loaded {
			file, its := filepath.Join(state, "placement.db"), func(a *agent) bool { return a.number%n == i }
			measured(fmt.Sprintf("the database of server %d", i),
				func() error { return load(t.Context(), file, f.agents, its) })
		}
		begin := time.Now()
		p := world.StartAlone(t, binaries, nil, args...).Serving(t)
		memory := testproc.Try(testproc.MemoryOf(p.Pid())).Or(t)
		t.Logf("server %d: started in %.2f s, RSS %d MiB", i, time.Since(begin).Seconds(), memory.RSS>>20)
		s.add(t, p.URL)
	}
	return s
}

// loadShared writes the trees of agents into an empty database of servers, as rows of a file.
func loadShared(t *testing.T, dsn string, agents []*agent) error {
	t.Helper()
	file := filepath.Join(t.TempDir(), "placement.db")
	if err := load(t.Context(), file, agents, func(*agent) bool { return true }); err != nil {
		return err
	}
	_, err := backup.Restore(t.Context(), dsn, store.DatabaseOptions(), file)
	return err
}

// load writes the trees of agents into a new SQLite database, as these would report them.
func load(ctx context.Context, path string, agents []*agent, its func(*agent) bool) (err error) {
	db, err := store.Open(ctx, path, store.Options{Logger: zerolog.Nop()})
	if err != nil {
		return err
	}
	l, err := transactor.Open(ctx, db, transactor.Options{})
	if err != nil {
		return err
	}
	defer func() {
		if closed := l.Close(); err == nil {
			err = closed
		}
	}()
	const batch = 200 // trees of a commit
	for len(agents) > 0 {
		now := agents[:min(batch, len(agents))]
		agents = agents[len(now):]
		if _, err := l.Update(ctx, func(tx *ledger.Tx) error {
			if _, _, err := tx.CreateTrait(customTrait); err != nil {
				return err
			}
			for _, a := range now {
				if its(a) {
					if err := a.load(tx); err != nil {
						return fmt.Errorf("agent %d: %w", a.number, err)
					}
				}
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// load writes the agent's tree.
func (a *agent) load(tx *ledger.Tx) error {
	tree := &providertree.Tree{}
	if err := tree.AddRoot(a.uuid(), a.name()); err != nil {
		return err
	}
	if err := a.report(tree); err != nil {
		return err
	}
	for p := range tree.All() {
		made, err := tx.CreateProvider(ledger.NewProvider{UUID: p.UUID, Name: p.Name, Parent: p.ParentUUID})
		if err != nil {
			return err
		}
		var rows []ledger.Inventory
		for class, i := range p.Inventories {
			i = i.Normalize()
			rows = append(rows, ledger.Inventory{
				Class: class, Total: i.Total, Reserved: i.Reserved, MinUnit: i.MinUnit, MaxUnit: i.MaxUnit,
				StepSize: i.StepSize, AllocationRatio: i.AllocationRatio,
			})
		}
		if made, err = tx.SetInventories(p.UUID, made.Generation, rows); err != nil {
			return err
		}
		if _, err := tx.SetTraits(p.UUID, made.Generation, p.Traits); err != nil {
			return err
		}
	}
	return nil
}
