// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/compute-agent/compute-agent/cells/cellclient"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/internal/auditlog"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
	"github.com/compute-agent/compute-agent/test/world"
)

// recorded are the names of the things of a kind that were created according to an audit log, with
// what it says became of them.
func recorded(t *testing.T, path, kind string) map[string]string {
	t.Helper()
	r := auditlog.Reader{Paths: testproc.Try(auditlog.Files(path)).Or(t)}
	names := map[string]string{}
	check(t, r.Read(t.Context(), func(r auditlog.Record) error {
		for _, c := range r.Changes {
			if c.Kind == kind && c.Before == nil {
				if _, twice := names[c.Name]; twice {
					t.Errorf("%s has two records", c.Name)
				}
				names[c.Name] = r.Outcome
			}
		}
		return nil
	}))
	return names
}

// providers are the names of all that there are.
func (c *client) providers(t *testing.T) map[string]bool {
	t.Helper()
	var body struct {
		Providers []struct{ Name string } `json:"resource_providers"`
	}
	testproc.Try(c.ask(t.Context(), http.MethodGet, "/resource_providers", nil)).Or(t).
		Is(t, http.StatusOK).Into(t, &body)
	names := map[string]bool{}
	for _, p := range body.Providers {
		names[p.Name] = true
	}
	return names
}

// syncedAudit has what is done after a commit take time, in which a service is killed.
const syncedAudit = "COMPUTE_AGENT_AUDIT_SYNC=true"

// killed is a service with an audit log that is killed while it creates things.
type killed struct {
	log, kind string // the file, and the kind of the things
	start     func()
	kill      func()
	// create creates a thing, and reports whether that was acknowledged. An error is no answer.
	create func(ctx context.Context, name string) (bool, error)
	// there are those of the names that exist.
	there func(names []string) map[string]bool
}

// leavesRecords kills the service while many clients write, again and again. Whatever is in the
// database has one record in the audit log, whether it was acknowledged or not. What was done
// according to its record is there.
func (k *killed) leavesRecords(t *testing.T) {
	t.Helper()
	acknowledged := map[string]bool{}
	var tried []string
	dice := newDice(testproc.Seed(t), 0)
	for round := range rounds(t, 4) {
		k.start()
		var mu sync.Mutex
		var done atomic.Int64
		var last error
		enough, target := make(chan struct{}), 50+dice.Int64N(150)
		var writers sync.WaitGroup
		for w := range 32 {
			writers.Go(func() {
				for n := 0; ; n++ {
					name := fmt.Sprintf("%s-%d-%d-%d", k.kind, round, w, n)
					ok, err := k.create(t.Context(), name)
					mu.Lock()
					tried = append(tried, name)
					switch {
					case err != nil:
						last = err
					case ok:
						acknowledged[name] = true
					}
					mu.Unlock()
					if err != nil {
						return // it is killed
					}
					if done.Add(1) == target {
						close(enough)
					}
				}
			})
		}
		ended := make(chan struct{})
		go func() { defer close(ended); writers.Wait() }()
		select {
		case <-enough:
		case <-ended:
			if done.Load() < target {
				t.Fatalf("all writers had an error before %d things were made, in round %d; the last one: %v",
					target, round, last)
			}
		}
		k.kill()
		<-ended
	}
	k.start()
	there, records := k.there(tried), recorded(t, k.log, k.kind)
	unanswered := 0
	for name := range there {
		if records[name] == "" {
			t.Errorf("%s is in the database, acknowledged %v, and has no record", name, acknowledged[name])
		}
		if !acknowledged[name] {
			unanswered++
		}
	}
	for name, outcome := range records {
		if outcome == auditlog.Done && !there[name] {
			t.Errorf("%s was created according to the audit log, and is not there", name)
		}
	}
	for name := range acknowledged {
		if records[name] != auditlog.Done || !there[name] {
			t.Errorf("%s was acknowledged, the audit log says %q, and it is there: %v",
				name, records[name], there[name])
		}
	}
	if len(acknowledged) == 0 {
		t.Error("nothing was acknowledged")
	}
	t.Logf("%d writes, of which %d had no answer", len(there), unanswered)
}

// TestKillLeavesRecords is about Placement.
func TestKillLeavesRecords(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := place(t)
	at := []string{"--state-dir", dir}
	if dbservers.Engine(t) != "" {
		at = append(at, "--database", dbservers.WithPasswordFile(t, dbservers.Fresh(t)))
	}
	var server *process
	var c *client
	k := killed{
		log: filepath.Join(dir, "audit.log"), kind: auditlog.KindProvider,
		start: func() {
			server = start(t, func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, syncedAudit) }, at...)
			c = server.quietly(t)
		},
		kill: func() { server.Kill() },
		create: func(ctx context.Context, name string) (bool, error) {
			a, err := c.ask(ctx, http.MethodPost, "/resource_providers", world.Record{"name": name})
			return err == nil && a.Code == http.StatusOK, err
		},
		there: func([]string) map[string]bool {
			if dbservers.OnServer(t) { // it may have been late with the last COMMIT
				check(t, c.change(t.Context(), testproc.Seed(t)))
			}
			return c.providers(t)
		},
	}
	k.leavesRecords(t)
	server.Stop(t)
}

// TestKillLeavesRecordsOfCells is about a cell and the compute API, whose databases are others.
func TestKillLeavesRecordsOfCells(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dbservers.AboutFiles(t)
	w := world.New(t, world.Plan{Binaries: binaries, Cells: []string{"cell1"}, Env: []string{syncedAudit}, Tail: 20})
	t.Run("a cell", func(t *testing.T) {
		var cell *cellclient.Client
		running := true
		k := killed{
			log: filepath.Join(w.Path("cell1"), "audit.log"), kind: auditlog.KindServer,
			start: func() {
				if !running {
					w.LaunchCell("cell1")
				}
				running = true
				cell = testproc.Try(cellclient.New(cellclient.Config{URL: w.Cells["cell1"].URL, Cell: "cell1"})).Or(t)
				t.Cleanup(cell.CloseIdle)
			},
			kill: func() { w.Kill("cell1"); running = false },
			create: func(ctx context.Context, name string) (bool, error) {
				_, err := cell.Insert(ctx, cellwire.Server{
					UUID: named(name), Name: name, ProjectID: "p", UserID: "u", Host: "h1",
					Node: "n1", NodeUUID: named("n1"),
					VMState: cellwire.VMBuilding, TaskState: cellwire.TaskSpawning, CreatedAt: time.Now(),
				})
				return err == nil, err
			},
			there: func(names []string) map[string]bool {
				is := map[string]bool{}
				for _, name := range names {
					switch _, err := cell.Server(t.Context(), named(name)); {
					case err == nil:
						is[name] = true
					case !cellclient.IsNotFound(err):
						t.Fatal(err)
					}
				}
				return is
			},
		}
		k.leavesRecords(t)
	})
	t.Run("the compute API", func(t *testing.T) {
		c := newClient(t, w.APIURL+"/v2.1")
		running := true
		ask := func(ctx context.Context, method, path string, body any) (*world.Answer, error) {
			return world.Exchange(ctx, c.http, method, c.url+path, world.Admin.Header("2.69"), body)
		}
		k := killed{
			log: filepath.Join(w.Path("api"), "audit.log"), kind: auditlog.KindFlavor,
			start: func() {
				if !running {
					w.StartAPI()
				}
				running = true
			},
			kill: func() { w.API.Kill(); running = false },
			create: func(ctx context.Context, name string) (bool, error) {
				a, err := ask(ctx, http.MethodPost,
					"/flavors",
					world.Record{"flavor": world.Record{"id": name, "name": name, "vcpus": 1, "ram": 1, "disk": 0}})
				return err == nil && a.Code == http.StatusOK, err
			},
			there: func([]string) map[string]bool {
				is := map[string]bool{}
				for after := ""; ; {
					page := testproc.Try(ask(t.Context(), http.MethodGet, "/flavors?limit=500"+after, nil)).Or(t).
						Is(t, http.StatusOK).List(t, "flavors")
					if len(page) == 0 {
						return is
					}
					for _, f := range page {
						after = "&marker=" + f["id"].(string)
						is[f["name"].(string)] = true
					}
				}
			},
		}
		k.leavesRecords(t)
	})
}

// named is the uuid of a thing of a name.
func named(name string) string { return uuid.NewSHA1(uuid.Nil, []byte(name)).String() }

// TestRequiredAuditOnAFullDisk: when the disk of a required audit log becomes full, each write has
// a record or is refused, the first one included, and writes are taken again when there is space.
func TestRequiredAuditOnAFullDisk(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dbservers.AboutFiles(t)
	dir, logs := place(t), place(t)
	file := filepath.Join(logs, "audit.log")
	small := testproc.OnSmallDisk(t, logs, "1m", "")
	server := start(t, func(cmd *exec.Cmd) {
		cmd.Env = append(cmd.Env, "COMPUTE_AGENT_AUDIT_FILE="+file, "COMPUTE_AGENT_AUDIT_REQUIRED=true")
		small(cmd)
	}, "--state-dir", dir)
	c := newClient(t, server.Serving(t).URL)
	// While the disk is full, what became of the last write may not be in the file yet.
	complete := func(full bool) {
		t.Helper()
		there, records := c.providers(t), recorded(t, server.Inside(file), auditlog.KindProvider)
		for name := range there {
			if records[name] != auditlog.Done && (!full || records[name] != auditlog.Unknown) {
				t.Errorf("%s is there, and the audit log says %q", name, records[name])
			}
		}
		for name := range records {
			if !there[name] {
				t.Errorf("%s has a record, and is not there", name)
			}
		}
	}
	for n := range 2 {
		filler := server.Inside(filepath.Join(logs, "filler"))
		testproc.Fill(t, filler)
		grow(t, c, fmt.Sprint("full", n)).Is(t, http.StatusServiceUnavailable)
		complete(true) // the first write that had no place is not there
		grow(t, c, fmt.Sprint("refused", n)).Is(t, http.StatusServiceUnavailable)
		check(t, os.Remove(filler))
		c.ready(t)
		check(t, c.expect(t.Context(), http.StatusOK,
			http.MethodPost, "/resource_providers", world.Record{"name": fmt.Sprint("later", n)}))
	}
	complete(false)
	server.Stop(t)
}
