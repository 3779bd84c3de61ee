// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/compute-agent/compute-agent/internal/auditlog"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
	"github.com/compute-agent/compute-agent/test/world"
)

// recorded are the names of the resource providers that an audit log has, with what it says became
// of them.
func recorded(t *testing.T, path string) map[string]string {
	t.Helper()
	r := auditlog.Reader{Paths: testproc.Try(auditlog.Files(path)).Or(t)}
	names := map[string]string{}
	check(t, r.Read(t.Context(), func(r auditlog.Record) error {
		for _, c := range r.Changes {
			if c.Kind == auditlog.KindProvider && c.Before == nil {
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
	testproc.Try(c.ask(t.Context(), http.MethodGet, "/resource_providers", nil)).Or(t).Is(t, http.StatusOK).Into(t, &body)
	names := map[string]bool{}
	for _, p := range body.Providers {
		names[p.Name] = true
	}
	return names
}

// TestKillLeavesRecords: the server is killed while many clients write, again and again. Whatever
// is in the database has one record in the audit log, whether it was acknowledged or not. What was
// done according to its record is there.
func TestKillLeavesRecords(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := place(t)
	at := []string{"--state-dir", dir}
	if dbservers.Engine(t) != "" {
		at = append(at, "--database", dbservers.WithPasswordFile(t, dbservers.Fresh(t)))
	}
	acknowledged := map[string]bool{}
	dice := newDice(testproc.Seed(t), 0)
	// What is done after the commit then takes time, in which the server is killed.
	synced := func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, "COMPUTE_AGENT_AUDIT_SYNC=true") }
	for round := range rounds(t, 4) {
		server := start(t, synced, at...)
		c := server.quietly(t)
		var mu sync.Mutex
		var done atomic.Int64
		enough, target := make(chan struct{}), 50+dice.Int64N(150)
		var writers sync.WaitGroup
		for w := range 32 {
			writers.Go(func() {
				for n := 0; ; n++ {
					name := fmt.Sprintf("rp-%d-%d-%d", round, w, n)
					a, err := c.ask(t.Context(), http.MethodPost, "/resource_providers", world.Record{"name": name})
					if err != nil {
						return // it is killed
					}
					if a.Code == http.StatusOK {
						mu.Lock()
						acknowledged[name] = true
						mu.Unlock()
					}
					if done.Add(1) == target {
						close(enough)
					}
				}
			})
		}
		<-enough
		server.Kill()
		writers.Wait()
	}
	server := start(t, nil, at...)
	c := server.quietly(t)
	if dbservers.OnServer(t) { // it may have been late with the last COMMIT
		check(t, c.change(t.Context(), dice.Uint64()))
	}
	there, records := c.providers(t), recorded(t, filepath.Join(dir, "audit.log"))
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
		if records[name] != auditlog.Done {
			t.Errorf("%s was acknowledged, and the audit log says %q", name, records[name])
		}
	}
	t.Logf("%d writes, of which %d had no answer", len(there), unanswered)
	server.Stop(t)
}

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
		there, records := c.providers(t), recorded(t, server.Inside(file))
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
		check(t, c.expect(t.Context(), http.StatusOK, http.MethodPost, "/resource_providers", world.Record{"name": fmt.Sprint("later", n)}))
	}
	complete(false)
	server.Stop(t)
}
