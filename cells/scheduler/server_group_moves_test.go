// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// resized moves a server, and leaves it at VERIFY_RESIZE.
func (w *world) resized(uuid string) (from, to *agent) {
	w.t.Helper()
	from = w.host(uuid)
	w.must(w.migrate(uuid, cellwire.MigrationCold, ""))
	w.moves()
	w.work()
	w.work()
	to = w.host(uuid)
	w.is(uuid, cellwire.VMResized, "", to)
	return from, to
}

// decide confirms a migration, or reverts it.
func (w *world) decide(uuid string, stays bool) {
	w.t.Helper()
	m := testproc.Try(w.store.Mapping(ctx, uuid)).Or(w.t)
	w.must(w.scheduler.Decide(ctx, m, stays))
	for range 2 {
		w.work()
		w.moves()
	}
	w.work()
}

// booted is a server that was asked for, and scheduled.
func (w *world) booted(how ...func(*scheduler.CreateRequest)) string {
	w.t.Helper()
	uuid := w.created(how...)
	w.schedule()
	w.work()
	return uuid
}

// nowhere fails unless a server has no host, for that reason.
func (w *world) nowhere(uuid, why string) {
	w.t.Helper()
	if row := w.row(uuid); row.Host != "" || row.Fault == nil || !strings.HasSuffix(row.Fault.Message, why) {
		w.t.Errorf("it is on %q: %+v, want %q", row.Host, row.Fault, why)
	}
}

// TestMembersThatMoveAtOnce: of two members of a group with anti-affinity that move at once, each
// counts where the other goes and where it can go back to.
func TestMembersThatMoveAtOnce(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{3})
	_, in := w.group(apidb.PolicyAntiAffinity, 0)
	first, second := w.booted(in), w.booted(in)
	w.must(w.migrate(first, cellwire.MigrationCold, ""))
	w.must(w.migrate(second, cellwire.MigrationCold, ""))
	w.moves()
	for range 2 {
		w.work()
	}
	if w.row(first).Host == w.row(second).Host {
		t.Errorf("both are on %s", w.row(first).Host)
	}
	if n := len(w.open(first)) + len(w.open(second)); n != 1 {
		t.Errorf("%d of them move, and there is a host for one", n)
	}
}

// TestClaimIsReleasedIfAnotherMemberHasItsHost: a claim whose outcome the cell did not learn is
// given up when another member has gone to the same host meanwhile.
func TestClaimIsReleasedIfAnotherMemberHasItsHost(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{4})
	_, in := w.group(apidb.PolicyAntiAffinity, 0)
	first, second := w.booted(in), w.booted(in)
	w.must(w.migrate(first, cellwire.MigrationCold, ""))
	w.sites[1].link.when(func(r *http.Request) fault {
		if r.Method == http.MethodPost && strings.HasPrefix(r.URL.Path, "/v1/migrations/") &&
			!strings.HasSuffix(r.URL.Path, "query") {
			return hangs
		}
		return up
	})
	w.moves()
	w.sites[1].link.set(up)
	var claimed *agent
	for _, a := range w.all() {
		if held := w.holders()[first]; len(held) == 1 && held[0] == a.node {
			claimed = a
		}
	}
	w.is(first, cellwire.VMActive, cellwire.TaskResizePrep, w.host(first))
	if claimed == nil || claimed == w.host(first) {
		t.Fatal("nothing was claimed")
	}
	w.must(w.migrate(second, cellwire.MigrationCold, claimed.host))
	w.moves()
	w.pass(5 * time.Second)
	w.beat()
	for range 3 {
		w.moves()
		w.work()
	}
	w.is(second, cellwire.VMResized, "", claimed)
	if row := w.row(first); row.Host == claimed.host || row.VMState != cellwire.VMResized {
		t.Errorf("the first is %s on %s, and the second on %s", row.VMState, row.Host, claimed.host)
	}
	w.consistent(map[string]bool{first: true, second: true})
}

// TestPlacesOfServersThatMove: what is placed while another server waits for confirmation counts
// both of its hosts, and after that the one where it is.
func TestPlacesOfServersThatMove(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const again = " move to another host, or can still go back"
	for name, c := range map[string]struct {
		policy string // of a group that both are in; "": none
		hint   func(...string) func(*scheduler.CreateRequest)
		hosts  int
		why    string // what is placed meanwhile is nowhere; "": it is on a third host
		near   bool   // what is placed afterwards is on the same host
	}{
		"anti-affinity": {policy: apidb.PolicyAntiAffinity, hosts: 3},
		"anti-affinity and two hosts": {policy: apidb.PolicyAntiAffinity, hosts: 2,
			why: "The policy anti-affinity of the server group friends rules out others."},
		"affinity": {
			policy: apidb.PolicyAffinity, hosts: 3, near: true,
			why: " Members of the server group friends" + again + ", and its policy is affinity.",
		},
		"different_host":               {hint: apart, hosts: 3},
		"different_host and two hosts": {hint: apart, hosts: 2, why: " The hint different_host rules out others."},
		"same_host": {hint: near,
			hosts: 3, near: true, why: " The servers of the hint same_host" + again + "."},
	} {
		for _, stays := range []bool{true, false} {
			t.Run(name+map[bool]string{true: ", confirmed", false: ", reverted"}[stays], func(t *testing.T) {
				w := begin(t, []int{c.hosts})
				var in func(*scheduler.CreateRequest)
				var first string
				if c.hint != nil {
					first = w.booted()
					in = c.hint(first)
				} else {
					_, in = w.group(c.policy, 0)
					first = w.booted(in)
				}
				from, to := w.resized(first)
				second := w.booted(in)
				if c.why != "" {
					w.nowhere(second, c.why)
				} else if on := w.host(second); on == from || on == to {
					t.Errorf("it is on %s, and the other one moves from %s to %s", on.host, from.host, to.host)
				}
				w.decide(first, stays)
				if home := map[bool]*agent{true: to, false: from}[stays]; w.host(first) != home {
					t.Fatalf("the first is on %s, not %s", w.host(first).host, home.host)
				}
				third := w.booted(in)
				if row := w.row(third); (row.Host == w.row(first).Host) != c.near {
					t.Errorf("it is on %q, and the other one on %s: %+v", row.Host, w.row(first).Host, row.Fault)
				}
			})
		}
	}
}
