// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"testing"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/cells/scheduler/quota"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// newCrowdedWorld is a world whose Placement has more hosts that are not its own than candidates
// are asked for, and gives them first.
func newCrowdedWorld(t *testing.T, other http.Handler, hosts []int) *world {
	w := newWorldOn(t, databases(t), other, hosts,
		func(b *scheduler.Options, _ *quota.Options) { b.MaxCandidates = 4 })
	t.Cleanup(w.close)
	inventory := map[string]any{"VCPU": map[string]int{"total": 64}, "MEMORY_MB": map[string]int{"total": 65536},
		"DISK_GB": map[string]int{"total": 1000}}
	for i := range 8 {
		uuid := fmt.Sprintf("00000000-0000-4000-8000-%012d", i)
		w.ask(http.MethodPost,
			"/resource_providers", map[string]string{"uuid": uuid, "name": fmt.Sprintf("nova-%d", i)}, nil)
		w.ask(http.MethodPut, "/resource_providers/"+
			uuid+"/inventories", map[string]any{"resource_provider_generation": 0, "inventories": inventory}, nil)
	}
	w.plink.when(func(r *http.Request) fault {
		if q := r.URL.Query(); r.URL.Path == "/allocation_candidates" && q.Get("in_tree") == "" {
			// Whichever the first ones are: hosts that are not ours.
			q.Set("required", "!CUSTOM_OURS")
			r.URL.RawQuery = q.Encode()
		}
		return up
	})
	w.ask(http.MethodPut, "/traits/CUSTOM_OURS", nil, nil)
	for _, a := range w.all() {
		var provider struct {
			Generation int `json:"generation"`
		}
		w.ask(http.MethodGet, "/resource_providers/"+a.node, nil, &provider)
		w.ask(http.MethodPut, "/resource_providers/"+
			a.node+"/traits", map[string]any{"resource_provider_generation": provider.Generation,
			"traits": []string{"CUSTOM_OURS"}}, nil)
	}
	w.plink.counted()
	return w
}

// TestSearchHostByHost: servers find their hosts although Placement has so many others that none of
// ours is among those it gives.
func TestSearchHostByHost(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	fillHosts(t, nil)
}

func fillHosts(t *testing.T, other http.Handler) {
	w := newCrowdedWorld(t, other, []int{2, 2})
	on := map[string]bool{}
	for i := range 12 {
		uuid := w.created()
		w.schedule()
		row := w.row(uuid)
		if row.VMState != cellwire.VMBuilding {
			t.Fatalf("server %d: %+v, fault %+v", i, row, row.Fault)
		}
		on[row.Host] = true
		if n := w.plink.counted()["GET /allocation_candidates"]; n != 2 {
			t.Errorf("server %d cost %d requests for candidates, and not 2", i, n)
		}
		w.must(w.delete(uuid, false))
		w.work()
	}
	if len(on) < 2 {
		t.Errorf("12 servers were only on %v", on)
	}
	// What fits nowhere of ours costs a request for each of our hosts, and ends in cell0.
	big := small
	big.MemoryMB = 60000
	uuid := w.created(func(r *scheduler.CreateRequest) { r.Flavor = big })
	w.schedule()
	if row := w.row(uuid); row.VMState != cellwire.VMError {
		t.Errorf("the server that fits no host: got %+v, want it in error", row)
	}
	testproc.Equal(t, w.plink.counted()["GET /allocation_candidates"], 5, "it cost %d requests for candidates")
	// A host that is chosen is asked for at once.
	host := w.all()[0].host
	uuid = w.created(func(r *scheduler.CreateRequest) { r.ForcedHost = host })
	w.schedule()
	if n := w.plink.counted()["GET /allocation_candidates"]; n != 1 || w.row(uuid).Host != host {
		t.Errorf("a forced host cost %d requests, and the server is on %q", n, w.row(uuid).Host)
	}
	w.work()
	w.consistent(map[string]bool{uuid: true})
}

// TestRealPlacementWithCrowdAndFaults: servers come and go on OpenStack's Placement as on ours,
// also with hosts of others and when answers are lost.
func TestRealPlacementWithCrowdAndFaults(t *testing.T) {
	real := testproc.StartPlacement(t)
	at := testproc.Try(url.Parse(real.URL)).Or(t)
	proxy := httputil.NewSingleHostReverseProxy(at)
	t.Run("crowded", func(t *testing.T) { fillHosts(t, proxy) })
	testproc.Check(t, real.Reset(t.Context()))
	w := newWorldOn(t, databases(t), proxy, []int{1, 1}, limits(10, 20, 51200))
	t.Cleanup(w.close)
	alive := map[string]bool{}
	for _, how := range []fault{up, lost, hangs, rubbish, refused, late} {
		// Each write of this boot fails once.
		failed := map[string]bool{}
		w.plink.when(func(r *http.Request) fault {
			if r.Method == http.MethodGet || failed[route(r)] {
				return up
			}
			failed[route(r)] = true
			return how
		})
		uuid := w.created()
		for range 4 {
			w.schedule()
			w.pass(scheduler.DefaultGrace / 2)
			w.beat()
		}
		w.plink.set(up)
		w.work()
		if row := w.row(uuid); row.VMState != cellwire.VMActive {
			t.Errorf("fault %d: %+v, %+v", how, row, row.Fault)
		}
		alive[uuid] = true
		if how == lost || how == late {
			w.must(w.delete(uuid, false))
			w.work()
			alive[uuid] = false
		}
	}
	w.must(w.scheduler.Reconcile(ctx))
	w.consistent(alive)
}
