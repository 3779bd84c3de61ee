// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/cells/scheduler/quota"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// group makes a server group, and returns what puts a server into it.
func (w *world) group(policy string, most int64) (apidb.ServerGroup, func(*scheduler.CreateRequest)) {
	w.t.Helper()
	g, err := w.store.CreateServerGroup(ctx,
		apidb.ServerGroup{Name: "friends", ProjectID: "p", UserID: "u", Policy: policy, MaxPerHost: most}, nil)
	w.must(err)
	return g, func(r *scheduler.CreateRequest) { r.Group = g.UUID }
}

// onHosts is how many servers each host has, the most first, and how many have none.
func (w *world) onHosts(uuids ...string) (counts []int, none int) {
	w.t.Helper()
	on := map[string]int{}
	for _, uuid := range uuids {
		if row := w.row(uuid); row.Host != "" {
			on[row.Host]++
		} else {
			none++
		}
	}
	for _, n := range on {
		counts = append(counts, n)
	}
	slices.SortFunc(counts, func(a, b int) int { return b - a })
	return counts, none
}

// TestServerGroupPolicies: where the servers of a group are, asked for one by one and at once.
func TestServerGroupPolicies(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		policy  string
		most    int64
		hosts   []int // of each cell
		servers int
		counts  []int
		none    int
		why     string // what the user reads of those without a host
	}{
		"anti-affinity": {policy: apidb.PolicyAntiAffinity, hosts: []int{2, 1}, servers: 4,
			counts: []int{1, 1, 1}, none: 1,
			why: "The policy anti-affinity of the server group friends rules out others."},
		"anti-affinity, two a host": {policy: apidb.PolicyAntiAffinity, most: 2, hosts: []int{2}, servers: 5,
			counts: []int{2, 2}, none: 1,
			why: "The policy anti-affinity of the server group friends rules out others."},
		"affinity": {policy: apidb.PolicyAffinity, hosts: []int{1, 2}, servers: slots + 1,
			counts: []int{slots}, none: 1, why: "The policy affinity of the server group friends rules out others."},
		"soft affinity": {policy: apidb.PolicySoftAffinity, hosts: []int{1, 2},
			servers: slots + 1, counts: []int{slots, 1}},
		"soft anti-affinity": {policy: apidb.PolicySoftAntiAffinity, hosts: []int{1, 2},
			servers: 5, counts: []int{2, 2, 1}},
		"soft affinity and no place": {policy: apidb.PolicySoftAffinity, hosts: []int{1}, servers: slots + 1,
			counts: []int{slots}, none: 1, why: "There are not enough hosts available."},
	} {
		for how, schedule := range map[string]func(w *world, in func(*scheduler.CreateRequest)) []string{
			"one by one": func(w *world, in func(*scheduler.CreateRequest)) (uuids []string) {
				for range c.servers {
					uuids = append(uuids, w.created(in))
					w.schedule()
				}
				return uuids
			},
			"at once": func(w *world, in func(*scheduler.CreateRequest)) (uuids []string) {
				servers, err := w.create(in, func(r *scheduler.CreateRequest) { r.Min = int64(c.servers) })
				w.must(err)
				for _, s := range servers {
					uuids = append(uuids, s.UUID)
				}
				w.schedule()
				return uuids
			},
		} {
			dbservers.Case(t, name+"/"+how, func(t *testing.T) {
				testproc.Parallel(t, testproc.Light)
				w := begin(t, c.hosts)
				_, in := w.group(c.policy, c.most)
				uuids := schedule(w, in)
				counts, none := w.onHosts(uuids...)
				if !slices.Equal(counts, c.counts) || none != c.none {
					t.Errorf("hosts have %v and %d are nowhere, not %v and %d", counts, none, c.counts, c.none)
				}
				for _, uuid := range uuids {
					if row := w.row(uuid); row.Fault != nil &&
						(!strings.HasSuffix(row.Fault.Message, c.why) ||
							!strings.HasPrefix(row.Fault.Message, "No valid host was found.")) {
						t.Errorf("the fault is %+v", row.Fault)
					}
				}
				all := map[string]bool{}
				for _, uuid := range uuids {
					all[uuid] = true
				}
				w.consistent(all)
			})
		}
	}
}

// TestServerGroupsCost: what a server of a group costs more, and that the log counts the hosts that
// its policy rules out.
func TestServerGroupsCost(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{1, 1})
	_, in := w.group(apidb.PolicyAntiAffinity, 0)
	first := w.created(in)
	w.schedule()
	home, other := w.sites[1], w.sites[2]
	if w.row(first).Host == other.agents[0].host {
		home, other = other, home
	}
	second := w.created(in)
	home.link.counted()
	other.link.counted()
	w.plink.counted()
	w.schedule()
	diff(t, map[string]int{"GET /v1/services": 1, "POST /v1/servers/hosts/query": 1}, home.link.counted())
	diff(t, map[string]int{"GET /v1/services": 1, "PUT /v1/servers/{uuid}": 1, "POST /v1/servers/{uuid}/release": 1},
		other.link.counted())
	diff(t, map[string]int{"GET /allocation_candidates": 1, "PUT /allocations/{uuid}": 1}, w.plink.counted())
	if counts, none := w.onHosts(first, second); !slices.Equal(counts, []int{1, 1}) || none != 0 {
		t.Errorf("servers on each host: got %v, without one %d, want one on each of two", counts, none)
	}
	w.must(w.delete(first, false))
	w.created(in)
	w.schedule()
	w.created(in)
	w.schedule()
	testproc.Contains(t, w.logged(), `"server_group_policy":2`, "the log: %v")
}

// TestServerGroupInAnOutage: members in a cell that is down are where they are: affinity has no
// host then, anti-affinity those of other cells.
func TestServerGroupInAnOutage(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for policy, why := range map[string]string{
		apidb.PolicyAntiAffinity: "", apidb.PolicySoftAffinity: "",
		apidb.PolicyAffinity: " Members of the server group friends are in a cell that cannot be used now, and its " +
			"policy is affinity.",
	} {
		t.Run(policy, func(t *testing.T) {
			w := begin(t, []int{1, 1})
			_, in := w.group(policy, 0)
			first := w.created(in)
			w.schedule()
			m := testproc.Try(w.store.Mapping(ctx, first)).Or(w.t)
			second := w.created(in) // before the outage, in which the project cannot boot
			w.site(m.CellUUID).link.set(refused)
			w.schedule()
			row := w.row(second)
			if (row.Host == "") != (why != "") || row.Fault != nil && !strings.HasSuffix(row.Fault.Message, why) {
				t.Errorf("it is on %q: %+v", row.Host, row.Fault)
			}
		})
	}
}

// TestServerGroupWaitsForRelease: a member whose row is hidden yet is waited for.
func TestServerGroupWaitsForRelease(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{2})
	_, in := w.group(apidb.PolicyAntiAffinity, 0)
	first := w.created(in)
	w.sites[1].link.when(func(r *http.Request) fault {
		if strings.HasSuffix(r.URL.Path, "/release") {
			return refused
		}
		return up
	})
	w.schedule()
	second := w.created(in)
	w.schedule()
	if m, err := w.store.Mapping(ctx, second); err != nil || m.CellUUID != "" {
		t.Errorf("it did not wait: %+v, %v", m, err)
	}
	w.sites[1].link.set(up)
	for range 2 {
		w.pass(scheduler.DefaultGrace)
		w.beat()
		w.schedule()
	}
	if counts, none := w.onHosts(first, second); !slices.Equal(counts, []int{1, 1}) || none != 0 {
		t.Errorf("servers on each host: got %v, without one %d, want one on each of two", counts, none)
	}
	w.consistent(map[string]bool{first: true, second: true})
}

// TestDeletedServerGroup: servers of a group that is deleted before they are placed go anywhere,
// and there can be no new ones in it.
func TestDeletedServerGroup(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{1})
	g, in := w.group(apidb.PolicyAntiAffinity, 0)
	first, second := w.created(in), w.created(in)
	w.must(w.store.DeleteServerGroup(ctx, g.UUID))
	w.schedule()
	if counts, none := w.onHosts(first, second); !slices.Equal(counts, []int{2}) || none != 0 {
		t.Errorf("servers on each host: got %v, without one %d, want two on one", counts, none)
	}
	testproc.Try(w.create(in)).ErrorIs(t, apidb.ErrGroup, "creating the server: %v")
}

// TestServerGroupMembersQuota: a group has no more members of a user than the quota allows.
func TestServerGroupMembersQuota(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{2}, func(_ *scheduler.Options, q *quota.Options) {
		q.Defaults[quota.GroupMembers] = 2
	})
	_, in := w.group(apidb.PolicySoftAffinity, 0)
	several := func(n int64) func(*scheduler.CreateRequest) {
		return func(r *scheduler.CreateRequest) { r.Min = n }
	}
	testproc.Try(w.create(in, several(3))).ErrorIs(t, quota.ErrGroupFull, "three at once: %v")
	servers := testproc.Try(w.create(in, several(2))).Or(w.t)
	testproc.Try(w.create(in)).ErrorIs(t, quota.ErrGroupFull, "a third one: %v")
	_, err := w.create(several(3)) // in none
	w.must(err)
	w.must(w.delete(servers[0].UUID, false))
	w.created(in)
	if g, err := w.store.ServerGroupOf(ctx, servers[1].UUID); err != nil || len(g.Members) != 2 {
		t.Errorf("ServerGroupOf: got %+v, %v, want two members", g, err)
	}
	w.schedule()
	if row := w.row(servers[1].UUID); row.VMState != cellwire.VMBuilding {
		t.Errorf("the server after a member was deleted: got %+v, want it building", row)
	}
}
