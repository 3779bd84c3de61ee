// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// near and apart are the hints same_host and different_host.
func near(uuids ...string) func(*scheduler.CreateRequest) {
	return func(r *scheduler.CreateRequest) { r.SameHost = uuids }
}

func apart(uuids ...string) func(*scheduler.CreateRequest) {
	return func(r *scheduler.CreateRequest) { r.DifferentHost = uuids }
}

// TestHostHints: servers are on the hosts of others, or not, in whichever cells those are; without
// such a host they are in error, and their faults name the hint.
func TestHostHints(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{1, 1})
	first := w.created()
	w.schedule()
	second := w.created(apart(first))
	w.schedule()
	home, away := w.row(first).Host, w.row(second).Host
	if home == away || away == "" {
		t.Fatalf("they are on %s and %s", home, away)
	}
	expect := func(uuid, host, why string) {
		t.Helper()
		row := w.row(uuid)
		if row.Host != host {
			t.Errorf("%s is on %q, not %q: %+v", uuid, row.Host, host, row.Fault)
		}
		if why != "" && !strings.HasSuffix(row.Fault.Message, why) {
			t.Errorf("the fault is %+v, not %s", row.Fault, why)
		}
	}
	all := map[string]bool{first: true, second: true}
	boot := func(hints ...func(*scheduler.CreateRequest)) string {
		uuid := w.created(hints...)
		all[uuid] = true
		w.schedule()
		return uuid
	}
	expect(boot(near(first)), home, "")
	expect(boot(near(second)), away, "")
	expect(boot(near(first, second), apart(first)), away, "")
	expect(boot(apart(first, second)), "", "The hint different_host rules out others.")
	expect(boot(near(first), apart(first)), "",
		"The hint same_host rules out others. The hint different_host rules out others.")
	lost := boot(apart(first, second)) // in no cell but cell0
	expect(boot(near(lost)), "", "The servers of the hint same_host are on no host.")
	expect(boot(near(second), apart(lost)), away, "")
	expect(boot(near(second)), "", "The hint same_host rules out others.") // it is full
	w.must(w.delete(first, false))
	delete(all, first)
	expect(boot(near(first)), "", "The servers of the hint same_host are on no host.")
	if !strings.Contains(w.logged(), `"not_different_host":2`) || !strings.Contains(w.logged(), `"not_same_host":1`) {
		t.Error(w.logged())
	}
	w.consistent(all)
}

// TestHostHintsWithAGroup: a hint and the policy of a server group hold together.
func TestHostHintsWithAGroup(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{2, 1})
	_, in := w.group(apidb.PolicyAffinity, 0)
	first := w.created(in)
	w.schedule()
	other := w.created(apart(first))
	w.schedule()
	with, against := w.created(in, near(first)), w.created(in, near(other))
	w.schedule()
	if a, b := w.row(first), w.row(with); a.Host != b.Host {
		t.Errorf("the members are on %s and %s", a.Host, b.Host)
	}
	if row := w.row(against); row.Host != "" || !strings.Contains(row.Fault.Message, "same_host") ||
		!strings.Contains(row.Fault.Message, "affinity") {
		t.Errorf("it is on %q: %+v", row.Host, row.Fault)
	}
}

// TestHostHintsInAnOutage: servers in a cell that is down are where they are, and no other server
// can be there.
func TestHostHintsInAnOutage(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{1, 1})
	first := w.created()
	w.schedule()
	m := testproc.Try(w.store.Mapping(ctx, first)).Or(w.t)
	// before the outage, in which the project cannot boot
	with, without := w.created(near(first)), w.created(apart(first))
	w.site(m.CellUUID).link.set(refused)
	w.schedule()
	if row := w.row(with); row.Host != "" ||
		!strings.HasSuffix(row.Fault.Message,
			" The servers of the hint same_host are in a cell that cannot be used now.") {
		t.Errorf("it is on %q: %+v", row.Host, row.Fault)
	}
	if row := w.row(without); row.Host == "" {
		t.Errorf("the server without hints: got the fault %+v, want a host", row.Fault)
	}
}

// TestHostHintsWait: servers whose hosts are not known yet are waited for.
func TestHostHintsWait(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{2})
	first := w.created()
	second := w.created(apart(first)) // at once
	third := w.created(near(second))
	w.sites[1].link.when(func(r *http.Request) fault {
		if strings.HasSuffix(r.URL.Path, "/release") {
			return refused
		}
		return up
	})
	w.schedule()
	for _, uuid := range []string{second, third} {
		if m, err := w.store.Mapping(ctx, uuid); err != nil || m.CellUUID != "" {
			t.Errorf("it did not wait: %+v, %v", m, err)
		}
	}
	w.sites[1].link.set(up)
	for range 4 {
		w.pass(scheduler.DefaultGrace)
		w.beat()
		w.schedule()
	}
	if a, b, c := w.row(first).Host, w.row(second).Host, w.row(third).Host; a == b || b != c || b == "" {
		t.Errorf("they are on %q, %q and %q", a, b, c)
	}
	w.consistent(map[string]bool{first: true, second: true, third: true})
}

// TestHostHintsOfAMove: a server that is evacuated stays away from the servers of its hint, and has
// no host if all others are theirs.
func TestHostHintsOfAMove(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{2})
	first := w.created()
	w.schedule()
	w.work()
	second := w.created(apart(first))
	w.schedule()
	w.work()
	from := w.host(second)
	w.dies(from)
	w.must(w.migrate(second, cellwire.MigrationEvacuation, ""))
	w.moves()
	if row := w.row(second); row.Host != from.host ||
		row.Fault == nil || !strings.HasSuffix(row.Fault.Message, "The hint different_host rules out others.") {
		t.Errorf("it is on %s: %+v", row.Host, row.Fault)
	}
	w.must(w.delete(first, false))
	w.work()
	w.must(w.migrate(second, cellwire.MigrationEvacuation, ""))
	w.moves()
	if to := w.host(second); to == from {
		t.Error("it does not move to the host that is empty now")
	}
}
