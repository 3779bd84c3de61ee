// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/auditlog"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/placement/api"
	"github.com/compute-agent/compute-agent/placement/store"
	"github.com/compute-agent/compute-agent/placement/transactor"
	"github.com/compute-agent/compute-agent/test/placementtest"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// auditedAPI is an API with an audit log, and how to read what the log has.
func auditedAPI(t testing.TB, opts auditlog.Options, change ...func(*api.Config)) (*api.API, func() []auditlog.Record) {
	t.Helper()
	if opts.File == "" {
		opts.File = filepath.Join(t.TempDir(), "audit.log")
	}
	opts.Logger = zerolog.Nop()
	log := testproc.Try(auditlog.Open(opts)).Or(t)
	t.Cleanup(func() { _ = log.Close() })
	h := newAPI(t, append(change, func(c *api.Config) { c.Audit = log.ForService("placement") })...)
	return h, func() (list []auditlog.Record) {
		t.Helper()
		files := testproc.Try(auditlog.Files(opts.File)).Or(t)
		r := auditlog.Reader{Paths: files}
		if err := r.Read(t.Context(),
			func(r auditlog.Record) error { list = append(list, r); return nil }); err != nil || r.Unreadable > 0 {
			t.Fatal(err, r.Unreadable)
		}
		return list
	}
}

// TestAuditRecordsWhoChangedWhat: each write that changed something has one record, with the id of
// its answer, its sender, and what was before and after; those that changed nothing have none.
func TestAuditRecordsWhoChangedWhat(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h, records := auditedAPI(t, auditlog.Options{})
	host(t, h)
	global := "req-11111111-2222-4333-8444-555555555555"
	writes := []call{
		{method: "PUT", path: "/traits/CUSTOM_T", version: "1.39", status: 201},
		{method: "PUT", path: "/traits/CUSTOM_T", version: "1.39", status: 204}, // as it was
		{method: "PUT", path: "/resource_providers/" + rp1 + "/traits", version: "1.39",
			body: `{"resource_provider_generation":1,"traits":["CUSTOM_T"]}`, status: 200},
		{method: "PUT", path: "/allocations/" + inst1, version: "1.39", body: instance(rp1, "null", 2), status: 204,
			headers: []string{"X-Openstack-Request-Id: " + global}},
		{method: "PUT", path: "/allocations/" + inst1, version: "1.39", body: instance(rp1, "1", 4), status: 204},
		// no capacity
		{method: "PUT", path: "/allocations/" + inst2, version: "1.39", body: instance(rp1, "null", 8), status: 409},
		{method: "GET", path: "/allocations/" + inst1, version: "1.39", status: 200},
		{method: "DELETE", path: "/allocations/" + inst1, version: "1.39", status: 204},
		{method: "PUT", path: "/resource_providers/" + rp2, version: "1.39", body: `{"name":"numa1"}`, status: 200},
		{method: "DELETE", path: "/resource_providers/" + rp2, version: "1.39", status: 204},
		{method: "PUT", path: "/resource_classes/CUSTOM_C", version: "1.39", status: 201},
	}
	var ids []string
	for _, c := range writes {
		ids = append(ids, c.do(t, h).Header().Get(osapi.HeaderRequestID))
	}
	var got []string
	list := records()
	for _, r := range list[3:] { // after those of host
		for i := range r.Changes {
			got = append(got, fmt.Sprint(slices.Index(ids, r.RequestID), " ", r.User, "/", r.Project, " ", r.Method,
				" ", r.Path, " ", r.Changes[i].String()))
		}
	}
	const who = " admin/admin "
	want := []string{
		"0" + who + "PUT /traits/CUSTOM_T trait CUSTOM_T: added CUSTOM_T",
		"2" + who + "PUT /resource_providers/" + rp1 + "/traits traits of node: added CUSTOM_T",
		"3" + who + "PUT /allocations/" + inst1 +
			" consumer " + inst1 + ": created project proj, type INSTANCE, user user",
		"3" + who + "PUT /allocations/" + inst1 + " allocation of " + inst1 + " on node: created VCPU 2",
		"4" + who + "PUT /allocations/" + inst1 + " allocation of " + inst1 + " on node: VCPU 2 → 4",
		"7" + who + "DELETE /allocations/" + inst1 +
			" consumer " + inst1 + ": removed, was project proj, type INSTANCE, user user",
		"7" + who + "DELETE /allocations/" + inst1 + " allocation of " + inst1 + " on node: removed, was VCPU 4",
		"8" + who + "PUT /resource_providers/" + rp2 + " provider " + rp2 + " (numa1): name numa0 → numa1",
		"9" + who + "DELETE /resource_providers/" + rp2 +
			" provider " + rp2 + " (numa1): removed, was name numa1, parent " + rp1,
		"10" + who + "PUT /resource_classes/CUSTOM_C resource class CUSTOM_C: added CUSTOM_C",
	}
	testproc.Same(t, cmp.Diff(want, got))
	if r := list[5]; r.GlobalRequestID != global || r.Service != "placement" || !strings.Contains(r.Address, ":") ||
		!r.Time.Equal(clock) || r.Outcome != auditlog.Done {
		t.Errorf("the record of the claim: %+v", r)
	}
	inventory := list[2].Changes
	if len(inventory) != 2 ||
		inventory[1].String() !=
			"inventory VCPU of node: created allocation_ratio 1, max_unit 2147483647, min_unit 1, reserved 0, "+
				"step_size 1, total 8" {
		t.Errorf("the inventories of the node: %v", inventory)
	}
}

// replay makes allocations of records: those that the ledger of an empty start has now.
func replay(t testing.TB, list []auditlog.Record) map[string]map[string]map[string]int64 {
	t.Helper()
	state := map[string]map[string]map[string]int64{}
	for _, r := range list {
		for _, c := range r.Changes {
			if c.Kind != auditlog.KindAllocation {
				continue
			}
			read := func(value json.RawMessage) (amounts map[string]int64) {
				if value != nil {
					testproc.Check(t, json.Unmarshal(value, &amounts))
				}
				return amounts
			}
			if before := read(c.Before); !maps.Equal(state[c.ID][c.Provider], before) {
				t.Fatalf("request %s: the allocation of %s on %s was %v before, and the records until then say %v",
					r.RequestID, c.ID, c.Provider, before, state[c.ID][c.Provider])
			}
			after := read(c.After)
			if state[c.ID] == nil {
				state[c.ID] = map[string]map[string]int64{}
			}
			state[c.ID][c.Provider] = after
			if after == nil {
				delete(state[c.ID], c.Provider)
			}
			if len(state[c.ID]) == 0 {
				delete(state, c.ID)
			}
		}
	}
	return state
}

// TestAuditReplaysToTheLedger: from eight clients at once, whose writes share commits and of which
// many are refused, while the file is rotated often: what each record says was before is what the
// records until then say, and all of them together are the allocations of the ledger.
func TestAuditReplaysToTheLedger(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	var l *transactor.Ledger
	h, records := auditedAPI(t, auditlog.Options{MaxSize: 32 << 10, Keep: 1000}, func(c *api.Config) {
		l = openLedger(t)
		c.Ledger = l
	})
	host(t, h)
	call{method: "PUT", path: "/resource_providers/" + rp2 + "/inventories", version: "1.39",
		body: `{"resource_provider_generation":0,"inventories":{"VCPU":{"total":8}}}`, status: 200}.do(t, h)
	consumers := []string{inst1, inst2, agg1, agg2}
	var wg sync.WaitGroup
	var mu sync.Mutex
	statuses := map[int]int{}
	for g := range 8 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(g), 417))
			for range 60 {
				consumer := consumers[random.IntN(len(consumers))]
				var status int
				switch provider := []string{rp1, rp2}[random.IntN(2)]; random.IntN(6) {
				case 0:
					status = exchangeOnce(h, "DELETE", "/allocations/"+consumer, "")
				case 1: // several consumers at once
					status = exchangeOnce(h, "POST",
						"/allocations",
						fmt.Sprintf(
							`{%q:%s,%q:{"allocations":{},"project_id":"proj","user_id":"user",`+
								`"consumer_generation":null,"consumer_type":"INSTANCE"}}`,
							consumer, instance(provider, "null", 1), consumers[random.IntN(len(consumers))]))
				default:
					generation := "null"
					if s, err := l.Snapshot(t.Context()); err == nil {
						if c, ok := s.Consumer(consumer); ok {
							generation = fmt.Sprint(c.Generation)
						}
					}
					status = exchangeOnce(h, "PUT",
						"/allocations/"+consumer, instance(provider, generation, 1+random.IntN(5)))
				}
				mu.Lock()
				statuses[status]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	s := testproc.Try(l.Snapshot(t.Context())).Or(t)
	dump := testproc.Try(placementtest.DumpOf(s)).Or(t)
	want := map[string]map[string]map[string]int64{}
	for uuid, c := range dump.Consumers {
		want[uuid] = map[string]map[string]int64{}
		for provider, amounts := range c.Allocations {
			want[uuid][provider] = amounts
		}
	}
	list := records()
	testproc.Samef(t, cmp.Diff(want, replay(t, list)), "ledger -, records +")
	if statuses[204] < 50 || statuses[409] == 0 || statuses[500] > 0 {
		t.Errorf("the answers were %v: the test is worth little", statuses)
	}
	seen := map[string]bool{}
	for _, r := range list {
		if seen[r.RequestID] {
			t.Errorf("request %s has two records", r.RequestID)
		}
		seen[r.RequestID] = true
	}
}

// TestAuditNamesAllOfAReshape: a reshape of a thousand providers and consumers is recorded whole,
// in several records of bounded size with the id of the request.
func TestAuditNamesAllOfAReshape(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h, records := auditedAPI(t, auditlog.Options{})
	host(t, h)
	var inventories, allocations []string
	for i := range 1000 {
		uuid := fmt.Sprintf("22222222-0000-4000-8000-%012d", i)
		call{method: "POST", path: "/resource_providers",
			version: "1.39", body: fmt.Sprintf(`{"name":"rp%d","uuid":%q}`, i, uuid), status: 200}.do(t, h)
		inventories = append(inventories,
			fmt.Sprintf(
				`%q:{"resource_provider_generation":0,"inventories":{"VCPU":{"total":8},"MEMORY_MB":{"total":1024},`+
					`"DISK_GB":{"total":100}}}`, uuid))
		allocations = append(allocations,
			fmt.Sprintf(`"33333333-0000-4000-8000-%012d":%s`, i, instance(uuid, "null", 2)))
	}
	id := call{method: "POST", path: "/reshaper", version: "1.39", status: 204,
		body: `{"inventories":{` + strings.Join(inventories, ",") + `},"allocations":{` +
			strings.Join(allocations, ",") + `}}`}.do(t, h).Header().Get(osapi.HeaderRequestID)
	kinds, parts := map[string]int{}, 0
	for _, r := range records() {
		if r.RequestID != id {
			continue
		}
		if parts++; r.Part != parts || r.Parts < 2 {
			t.Errorf("part %d of %d is number %d", r.Part, r.Parts, parts)
		}
		if encoded, err := json.Marshal(r); err != nil || len(encoded) > 300<<10 {
			t.Errorf("part %d has %d bytes, %v", r.Part, len(encoded), err)
		}
		for _, c := range r.Changes {
			kinds[c.Kind]++
		}
	}
	if want := map[string]int{"inventory": 3000, "allocation": 1000, "consumer": 1000}; !maps.Equal(kinds, want) {
		t.Errorf("changes %v, want %v", kinds, want)
	}
}

// TestAuditThatCannotBeWritten: with a log that is not required writes go on, and their records are
// written when that is possible again. One that is required has the first one refused, of which
// nothing is left, and those after it, and /readyz says why.
func TestAuditThatCannotBeWritten(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, required := range []bool{false, true} {
		t.Run(fmt.Sprint("required ", required), func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "log", "audit.log")
			h, records := auditedAPI(t, auditlog.Options{File: file, Required: required})
			host(t, h)
			before := len(records())
			moved := filepath.Join(dir, "away")
			testproc.Check(t, os.Rename(filepath.Join(dir, "log"), moved))
			if err := os.WriteFile(filepath.Join(dir, "log"), nil, 0o600); err != nil { // where a directory is needed
				t.Fatal(err)
			}
			trait := func(name string, status int) {
				t.Helper()
				call{method: "PUT", path: "/traits/CUSTOM_" + name, version: "1.39", status: status}.do(t, h)
			}
			write, ready := 201, 200
			if required {
				write, ready = 503, 503
			}
			trait("FIRST", write) // finds it out
			trait("SECOND", write)
			call{method: "GET", path: "/readyz", status: ready}.do(t, h)
			all := call{method: "GET", path: "/traits?name=startswith:CUSTOM", version: "1.39", status: 200}.do(t, h).
				Body.String()
			if strings.Contains(all, "FIRST") == required || strings.Contains(all, "SECOND") == required {
				t.Errorf("the traits are %s", all)
			}
			testproc.Check(t, os.Remove(filepath.Join(dir, "log")))
			testproc.Check(t, os.Rename(moved, filepath.Join(dir, "log")))
			for exchangeOnce(h, http.MethodPut, "/traits/CUSTOM_THIRD", "") >= 400 {
				// until it is written again
			}
			var names []string
			for _, r := range records()[before:] {
				names = append(names, r.Changes[0].ID)
			}
			want := []string{"CUSTOM_FIRST", "CUSTOM_SECOND", "CUSTOM_THIRD"}
			if required {
				want = []string{"CUSTOM_THIRD"}
			}
			testproc.EqualList(t, names, want, "records of %q")
		})
	}
}

// BenchmarkAudit is a claim on SQLite, with and without an audit log.
func BenchmarkAudit(b *testing.B) {
	for _, kind := range []string{"none", "file", "file synced"} {
		b.Run(kind, func(b *testing.B) {
			s, err := store.Open(b.Context(), filepath.Join(b.TempDir(), "placement.db"),
				store.Options{Logger: zerolog.Nop()})
			testproc.Check(b, err)
			l := openOn(b, s)
			onDisk := func(c *api.Config) { c.Ledger = l }
			var h http.Handler
			if kind == "none" {
				h = newAPI(b, onDisk)
			} else {
				h, _ = auditedAPI(b, auditlog.Options{MaxSize: 1 << 40, Sync: kind != "file"}, onDisk)
			}
			host(b, h)
			generation := "null"
			for i := 1; b.Loop(); i++ {
				if status := exchangeOnce(h, http.MethodPut, "/allocations/"+inst1,
					instance(rp1, generation, 1+i%8)); status != http.StatusNoContent {
					b.Fatalf("status %d", status)
				}
				generation = fmt.Sprint(i)
			}
		})
	}
}
