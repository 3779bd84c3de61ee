// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/cells/scheduler/quota"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func begin(t *testing.T, hosts []int, options ...func(*scheduler.Options, *quota.Options)) *world {
	t.Helper()
	w := newWorld(t, databases(t), hosts, func(b *scheduler.Options, q *quota.Options) {
		for _, o := range options {
			o(b, q)
		}
	})
	t.Cleanup(w.close)
	return w
}

func diff(t *testing.T, want, got any) {
	t.Helper()
	testproc.Same(t, cmp.Diff(want, got))
}

// TestBoot: a server goes all the way to its host, and costs what it may cost.
func TestBoot(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{1, 0})
	w.sites[0].link.counted()
	w.sites[1].link.counted()
	w.sites[2].link.counted()
	uuid := w.created(func(r *scheduler.CreateRequest) { r.Hostname = "vm" })
	for _, s := range w.sites {
		diff(t, map[string]int{"GET /v1/survey": 1}, s.link.counted())
	}
	diff(t, map[string]int{}, w.plink.counted())
	m := testproc.Try(w.store.Mapping(ctx, uuid)).Or(w.t)
	if m.CellUUID != "" || m.QueuedForDelete == nil || *m.QueuedForDelete {
		t.Errorf("before it is scheduled the mapping is %+v", m)
	}
	w.schedule()
	// Without a limit there is nothing to look at once more.
	diff(t, map[string]int{}, w.sites[0].link.counted())
	diff(t, map[string]int{"GET /v1/services": 1, "PUT /v1/servers/{uuid}": 1, "POST /v1/servers/{uuid}/release": 1},
		w.sites[1].link.counted())
	diff(t, map[string]int{"GET /v1/services": 1}, w.sites[2].link.counted())
	diff(t, map[string]int{"GET /traits": 1, "GET /allocation_candidates": 1, "PUT /allocations/{uuid}": 1},
		w.plink.counted())
	row := w.row(uuid)
	if row.Host != "cell1-host1" || row.Hidden || row.VMState != cellwire.VMBuilding ||
		row.TaskState != cellwire.TaskSpawning || row.Hostname != "vm" || row.Name != "vm" {
		t.Errorf("the row is %+v", row)
	}
	w.work()
	if row := w.row(uuid); row.VMState != cellwire.VMActive {
		t.Errorf("the row is %+v", row)
	}
	w.consistent(map[string]bool{uuid: true})
}

// TestRecheckCosts: with limits each boot looks at the cells once more; those of one project that
// are scheduled together see the hosts once.
func TestRecheckCosts(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{2}, limits(10, 20, 51200))
	testproc.Try(w.create(func(r *scheduler.CreateRequest) { r.Min = 3 })).Or(w.t)
	w.sites[1].link.counted()
	w.plink.counted()
	w.schedule()
	asked := w.sites[1].link.counted()
	// of a boot that finds another one in its cell and as a build request
	if n := asked["POST /v1/servers/query"]; n > 3 {
		t.Errorf("the cell was asked %d times for what is being deleted", n)
	}
	delete(asked, "POST /v1/servers/query")
	diff(t, map[string]int{"GET /v1/services": 1, "GET /v1/survey": 3, "PUT /v1/servers/{uuid}": 3,
		"POST /v1/servers/{uuid}/release": 3}, asked)
	counts := w.plink.counted()
	if counts["GET /allocation_candidates"] != 3 || counts["PUT /allocations/{uuid}"] < 3 {
		t.Errorf("Placement was asked %v", counts)
	}
	w.work()
	names := map[string]bool{}
	for uuid := range w.guests() {
		names[w.row(uuid).Name] = true
	}
	diff(t, map[string]bool{"vm-1": true, "vm-2": true, "vm-3": true}, names)
}

// TestNothingToDo: a round of the reconciler costs one request to each cell when there are no
// servers, and one more where there are some; a pass of the scheduler costs none.
func TestNothingToDo(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{1, 1})
	uuid := w.created()
	w.schedule()
	w.work()
	w.pass(2 * scheduler.DefaultGrace)
	for _, s := range w.sites {
		s.link.counted()
	}
	w.plink.counted()
	w.schedule()
	w.must(w.scheduler.Reconcile(ctx))
	m := testproc.Try(w.store.Mapping(ctx, uuid)).Or(w.t)
	for _, s := range w.sites {
		want := map[string]int{"GET /v1/servers/unfinished": 1}
		if s.cell.UUID == m.CellUUID {
			want["POST /v1/servers/states"] = 1
		}
		diff(t, want, s.link.counted())
	}
	diff(t, map[string]int{}, w.plink.counted())
}

func limits(instances, cores, ram int64) func(*scheduler.Options, *quota.Options) {
	return func(_ *scheduler.Options, q *quota.Options) {
		q.Defaults = apidb.QuotaSet{quota.Instances: instances,
			quota.Cores: cores, quota.RAM: ram}
	}
}

// TestNoValidHost: what nothing can take ends in cell0, with Nova's fault, and holds nothing.
func TestNoValidHost(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	big := small
	big.VCPUs = 100
	disabled, intruder := true, uuid.NewString()
	cases := map[string]struct {
		why    string // of the field of the log that counts the node
		before func(*world)
		after  func(*world)
		change func(*scheduler.CreateRequest)
	}{
		"too big":      {why: "not_offered", change: func(r *scheduler.CreateRequest) { r.Flavor = big }},
		"another zone": {why: "other_zone", change: func(r *scheduler.CreateRequest) { r.Zone = "elsewhere" }},
		"no such host": {why: "not_the_forced_host",
			change: func(r *scheduler.CreateRequest) { r.ForcedHost = "elsewhere" }},
		"a trait that no host has": {why: "not_offered", change: func(r *scheduler.CreateRequest) {
			r.Flavor.ExtraSpecs = map[string]string{"trait:HW_CPU_X86_AVX2": "required"}
		}},
		"an unknown class": {change: func(r *scheduler.CreateRequest) {
			r.Flavor.ExtraSpecs = map[string]string{"resources:CUSTOM_GOLD": "1"}
		}},
		"the cell is down": {why: "cell_down", before: func(w *world) { w.sites[1].link.set(refused) }},
		"the cell hangs":   {why: "cell_down", before: func(w *world) { w.sites[1].link.set(hangs) }},
		"the cell is disabled": {why: "cell_disabled", before: func(w *world) {
			c := w.sites[1].cell
			c.Disabled = true
			w.must(w.store.UpdateCell(ctx, c))
		}},
		"the cell has lost its database": {why: "cell_database_suspect", before: func(w *world) {
			w.must(w.scheduler.Reconcile(ctx)) // it is known
			w.again(w.sites[1], loseDatabase(t))
			w.beat()
			w.must(w.scheduler.Reconcile(ctx))
		}, after: func(w *world) { w.accept(w.sites[1]) }},
		"the cell has no key pairs": {why: "cell_too_old", before: func(w *world) {
			for _, site := range w.sites {
				cell := site.link.to
				// as one decodes that does not have the field
				site.link.to = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
					body := testproc.Try(io.ReadAll(r.Body)).Or(w.t)
					if strings.Contains(string(body), "key_name") {
						rw.Header().Set("Content-Type", "application/json")
						rw.WriteHeader(http.StatusBadRequest)
						_, _ = io.WriteString(rw,
							`{"code":"bad_request","message":"The body cannot be read: unknown field \"key_name\"."}`)
						return
					}
					r.Body = io.NopCloser(bytes.NewReader(body))
					cell.ServeHTTP(rw, r)
				})
			}
		}, change: func(r *scheduler.CreateRequest) { r.KeyName, r.KeyData = "k", "ssh-ed25519 AAAA" }},
		"the host is silent": {why: "service_down", before: func(w *world) { w.pass(scheduler.DefaultGrace * 5) }},
		"the host is disabled": {why: "service_disabled", before: func(w *world) {
			a := w.sites[1].agents[0]
			services := testproc.Try(a.cell.Services(ctx)).Or(w.t)
			testproc.Try(a.cell.PatchService(ctx, services[0].UUID, cellwire.ServicePatch{Disabled: &disabled})).Or(w.t)
		}},
		"the node is disabled in Placement": {why: "not_offered", before: func(w *world) {
			w.ask("PUT", "/resource_providers/"+w.sites[1].agents[0].node+"/traits",
				map[string]any{"resource_provider_generation": 1, "traits": []string{"COMPUTE_STATUS_DISABLED"}}, nil)
		}},
		"the host is full meanwhile": {why: "refused_meanwhile", before: func(w *world) {
			node := w.sites[1].agents[0].node
			w.plink.when(func(r *http.Request) fault {
				if r.Method == http.MethodPut && strings.HasPrefix(r.URL.Path, "/allocations/") {
					w.ask("PUT", "/allocations/"+intruder, map[string]any{
						"allocations": map[string]any{
							node: map[string]any{"resources": map[string]int{"VCPU": slots}},
						},
						"consumer_generation": nil, "project_id": "p", "user_id": "u", "consumer_type": "INSTANCE",
					}, nil)
					w.plink.set(up)
				}
				return up
			})
		}, after: func(w *world) { w.ask("DELETE", "/allocations/"+intruder, nil, nil) }},
		"its cell has forgotten the host": {why: "service_missing", before: func(w *world) {
			w.must(w.store.MapNodes(ctx,
				[]apidb.Node{{UUID: uuid.NewString(), Name: "x", Host: "x", CellUUID: w.sites[1].cell.UUID}}))
		}, change: func(r *scheduler.CreateRequest) { r.Flavor = big }},
		"the host has another node than before": {why: "not_offered", before: func(w *world) {
			w.must(
				w.store.MapNodes(
					ctx,
					[]apidb.Node{
						{UUID: uuid.NewString(), Name: "cell1-host1", Host: "cell1-host1",
							CellUUID: w.sites[1].cell.UUID},
					},
				),
			)
		}, change: func(r *scheduler.CreateRequest) { r.Flavor = big }},
		"the host is not mapped": {why: "in_no_cell",
			before: func(w *world) { w.must(w.store.DeleteHost(ctx, "cell1-host1")) }},
	}
	for name, c := range cases {
		dbservers.Case(t, name, func(t *testing.T) {
			w := begin(t, []int{1})
			if c.change == nil {
				c.change = func(*scheduler.CreateRequest) {}
			}
			uuid := w.created(c.change)
			if c.before != nil {
				c.before(w)
			}
			w.schedule()
			row := w.row(uuid)
			if row.VMState != cellwire.VMError || row.Host != "" || row.Hidden ||
				row.Fault == nil || row.Fault.Code != 500 ||
				row.Fault.Message != "No valid host was found. There are not enough hosts available." {
				t.Errorf("the row is %+v, with the fault %+v", row, row.Fault)
			}
			if said := w.logged(); strings.Count(said, "No valid host was found for a server") != 1 ||
				!strings.Contains(said, `"project":"`+row.ProjectID+`"`) ||
				!strings.Contains(said, `"flavor":"`+row.Flavor.Name+`"`) || c.why != "" &&
				!strings.Contains(said, `"`+c.why+`":1`) {
				t.Errorf("it is not logged once with %s: %s", c.why, said)
			}
			if c.why != "" && c.why != "in_no_cell" && !strings.Contains(row.Fault.Details, " mapped nodes are 1 ") {
				t.Errorf("the details are %s", row.Fault.Details)
			}
			w.sites[1].link.set(up)
			if c.after != nil {
				c.after(w)
			}
			w.consistent(map[string]bool{uuid: true})
			if m, _ := w.store.Mapping(ctx, uuid); m.CellUUID != apidb.Cell0UUID {
				t.Errorf("it is mapped to %s", m.CellUUID)
			}
		})
	}
}

// TestOwnAllocationsAreReplaced: a server that fills a host, and holds it since an attempt
// before, gets that host.
func TestOwnAllocationsAreReplaced(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	whole := small
	whole.VCPUs = slots
	w := begin(t, []int{1})
	uuid := w.created(func(r *scheduler.CreateRequest) { r.Flavor = whole })
	w.scheduler.SetAfter(func(s string) error {
		if s == "allocate" {
			return errEnd
		}
		return nil
	})
	w.schedule()
	w.restart()
	w.schedule()
	if row := w.row(uuid); row.Host != "cell1-host1" {
		t.Errorf("it is on %q: %+v", row.Host, row.Fault)
	}
	w.consistent(map[string]bool{uuid: true})
}

// TestLostRow: a cell that erased a row after it was decided upon gets it again; in cell0 too.
func TestLostRow(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	big := small
	big.VCPUs = 100
	w := begin(t, []int{1})
	for flavor, site := range map[*cellwire.Flavor]*site{&small: w.sites[1], &big: w.sites[0]} {
		uuid := w.created(func(r *scheduler.CreateRequest) { r.Flavor = *flavor })
		w.scheduler.SetAfter(func(s string) error {
			if s == "place" {
				return errors.Join(site.store.Discard(ctx, uuid), errEnd)
			}
			return nil
		})
		w.schedule()
		w.restart()
		w.schedule()
		if row := w.row(uuid); (row.Host == "") != site.cell.IsCell0() || row.Hidden {
			t.Errorf("in %s the row is %+v", site.cell.Name, row)
		}
		w.consistent(map[string]bool{uuid: true})
		w.must(w.delete(uuid, false))
		w.consistent(map[string]bool{uuid: false})
	}
}

// TestLateAllocation: an allocation that arrives when the server has ended in cell0 already is not
// left over.
func TestLateAllocation(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{1})
	uuid := w.created()
	arrive := w.scheduleLate()
	w.sites[1].link.set(refused)
	w.pass(scheduler.DefaultGrace / 2)
	w.schedule()
	arrive()
	w.sites[1].link.set(up)
	if m, _ := w.store.Mapping(ctx, uuid); m.CellUUID != apidb.Cell0UUID {
		t.Errorf("it is mapped to %s", m.CellUUID)
	}
	w.consistent(map[string]bool{uuid: true})
}

// TestForcedHost: an administrator's choice is kept to.
func TestForcedHost(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{2, 2})
	for _, a := range w.all() {
		uuid := w.created(func(r *scheduler.CreateRequest) { r.ForcedHost = a.host })
		w.schedule()
		if row := w.row(uuid); row.Host != a.host || row.NodeUUID != a.node {
			t.Errorf("it was forced to %s and is on %s", a.host, row.Host)
		}
	}
}

// TestSpread: servers go where most is left.
func TestSpread(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{2, 2})
	for range 4 {
		w.created()
		w.schedule()
	}
	w.work()
	for _, a := range w.all() {
		testproc.Equal(t, len(a.guests), 1, "%s has %d of 4 servers on 4 hosts", a.host)
	}
}

// TestCellDiesBeforeInsert: a cell that does not take a server, or does not say so, loses it to the
// next.
func TestCellDiesBeforeInsert(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, how := range map[string]fault{"refused": refused, "lost": lost, "hangs": hangs,
		"rubbish": rubbish, "late": late} {
		dbservers.Case(t, name, func(t *testing.T) {
			w := begin(t, []int{1, 1})
			for _, s := range w.sites[1:] { // the first that is asked fails
				s.link.when(func(r *http.Request) fault {
					if r.Method != http.MethodPut || w.sites[1].link.how+w.sites[2].link.how != up {
						return up
					}
					s.link.mu.Lock()
					s.link.how = how
					s.link.mu.Unlock()
					return how
				})
			}
			uuid := w.created()
			w.schedule()
			row := w.row(uuid)
			failed := w.sites[1]
			if failed.link.how == up {
				failed = w.sites[2]
			}
			if failed.link.how == up || row.Host == "" || strings.HasPrefix(row.Host, failed.cell.Name) {
				t.Errorf("after %s was %s, it is on %q", failed.cell.Name, name, row.Host)
			}
			for _, s := range w.sites {
				s.link.set(up)
			}
			w.consistent(map[string]bool{uuid: true})
		})
	}
}

// TestStaysInBuild: while Placement, cell0 or the chosen cell is unavailable nothing is decided, or
// nothing is lost.
func TestStaysInBuild(t *testing.T) {
	t.Parallel()
	big := small
	big.VCPUs = 100
	for name, c := range map[string]struct {
		link   func(*world) *link
		flavor cellwire.Flavor
		only   string // of the route
	}{
		"Placement": {link: func(w *world) *link { return w.plink }, flavor: small},
		"Placement, when it allocates": {link: func(w *world) *link { return w.plink }, flavor: small,
			only: "PUT /allocations/{uuid}"},
		"cell0": {link: func(w *world) *link { return w.sites[0].link }, flavor: big,
			only: "PUT /v1/servers/{uuid}"},
		"cell0, when it is shown there": {link: func(w *world) *link { return w.sites[0].link }, flavor: big,
			only: "POST /v1/servers/{uuid}/release"},
		"the cell, when it is shown": {link: func(w *world) *link { return w.sites[1].link }, flavor: small,
			only: "POST /v1/servers/{uuid}/release"},
	} {
		for how, f := range map[string]fault{"refused": refused, "lost": lost, "hangs": hangs,
			"rubbish": rubbish, "late": late} {
			dbservers.Case(t, name+" "+how, func(t *testing.T) {
				testproc.Parallel(t, testproc.Light)
				w := begin(t, []int{1})
				uuid := w.created(func(r *scheduler.CreateRequest) { r.Flavor = c.flavor })
				c.link(w).when(func(r *http.Request) fault {
					if c.only != "" && route(r) != c.only {
						return up
					}
					return f
				})
				for range 3 {
					w.schedule()
					if _, err := w.store.BuildRequest(ctx, uuid); err != nil {
						t.Fatalf("the build request: %v", err)
					}
					w.pass(scheduler.DefaultGrace / 2)
					w.beat()
				}
				c.link(w).set(up)
				w.schedule()
				if _, err := w.store.BuildRequest(ctx, uuid); !errors.Is(err, apidb.ErrNotFound) {
					t.Errorf("the build request when it is back: %v", err)
				}
				w.consistent(map[string]bool{uuid: true})
			})
		}
	}
}
