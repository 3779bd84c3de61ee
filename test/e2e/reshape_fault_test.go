// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker/journal"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// fault is what happens to one request.
type fault struct {
	name string
	// forward: Placement gets the request.
	forward bool
	// kill: the agent is killed then. Otherwise it gets the answer, or none if status is 0.
	kill   bool
	status int
	body   string
	// late: Placement gets the request only so many requests later, those of the next start counted
	// on.
	late int
}

const conflict = `{"errors": [{"status": 409, "title": "Conflict", "detail": "made up", "code": ` +
	`"placement.concurrent_update", "request_id": "req-1"}]}`

var allFaults = []fault{
	{name: "killed before", kill: true},
	{name: "killed after", kill: true, forward: true},
	{name: "request lost"},
	{name: "reply lost", forward: true},
	{name: "late", late: 2},
	{name: "very late", late: 11},
	{name: "killed and late", kill: true, late: 4},
	{name: "killed and very late", kill: true, late: 24},
	{name: "409", status: http.StatusConflict, body: conflict},
	{name: "500", status: http.StatusInternalServerError, body: "<html>oops</html>"},
	{name: "500 after", status: http.StatusInternalServerError, body: "<html>oops</html>", forward: true},
	{name: "503", status: http.StatusServiceUnavailable},
	{name: "garbage", status: http.StatusOK, body: "\x00{[garbage"},
	{name: "garbage after", status: http.StatusOK, body: "\x00{[garbage", forward: true},
}

// faulty is a Placement whose k-th request of the agent meets a fault.
type faulty struct {
	placement http.Handler

	mu    sync.Mutex
	k     int // from 1; 0: none
	fault fault
	kill  func()
	trace []string
	late  int           // how many requests until the one under way arrives
	stray *http.Request // the one under way
}

// arm forgets what was and lets the k-th request from now meet the fault.
func (f *faulty) arm(k int, what fault, kill func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.k, f.fault, f.kill, f.trace = k, what, kill, nil
}

func (f *faulty) requests() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.trace...)
}

func (f *faulty) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get(observer) != "" { // the test's own looks
		f.placement.ServeHTTP(w, r)
		return
	}
	f.mu.Lock()
	f.trace = append(f.trace, r.Method+" "+r.URL.Path)
	hit := len(f.trace) == f.k
	what, kill := f.fault, f.kill
	var arrives *http.Request
	if f.late--; f.late == 0 {
		arrives = f.stray
	}
	f.mu.Unlock()
	if arrives != nil {
		f.placement.ServeHTTP(httptest.NewRecorder(), arrives)
	}
	if !hit {
		f.placement.ServeHTTP(w, r)
		return
	}
	if what.late > 0 {
		f.hold(r, what.late)
	}
	if what.forward {
		f.placement.ServeHTTP(httptest.NewRecorder(), r)
	}
	if what.kill {
		kill()
	}
	if what.kill || what.status == 0 {
		panic(http.ErrAbortHandler) // the connection breaks
	}
	w.WriteHeader(what.status)
	_, _ = io.WriteString(w, what.body)
}

// hold keeps a request on its way.
func (f *faulty) hold(r *http.Request, late int) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(err)
	}
	stray := r.Clone(context.Background())
	stray.Body = io.NopCloser(bytes.NewReader(body))
	f.mu.Lock()
	defer f.mu.Unlock()
	f.late, f.stray = late, stray
}

// serve serves a handler on a port until the test ends.
func serve(t *testing.T, h http.Handler) string {
	t.Helper()
	front := httptest.NewServer(h)
	t.Cleanup(front.Close)
	return front.URL
}

// before is a host in use just before the start that reshapes it: the states of its agent and of
// its Placement.
type before struct {
	agent, placement string
	picture          picture
	uuids            map[string]string
}

// formerly is the machine of newLayout with its VGPUs on one card and a smaller disk: the start
// that reshapes it creates providers, sets traits, reshapes, and removes a provider.
const formerly = `nodes = [{name = "cn1", traits = ["CUSTOM_FAST"], inventories = {VCPU = {total = 8, allocation_ratio = 4.0}, MEMORY_MB = {total = 8192},
  SRIOV_NET_VF = {total = 8}, DISK_GB = {total = 90}}, children = [{name = "card", inventories = {VGPU = {total = 8}}}]}]`

const newLayout = "numa"

// onCard is busy with the VGPUs of the node on the card.
func onCard() holding {
	claims := busy("VGPU")
	for _, held := range claims {
		if n := held["cn1"]["VGPU"]; n > 0 {
			held["cn1_card"] = map[string]int64{"VGPU": n}
			delete(held["cn1"], "VGPU")
		}
	}
	return claims
}

// prepare makes it.
func prepare(t *testing.T) before {
	t.Helper()
	b := before{agent: t.TempDir(), placement: t.TempDir()}
	server := openPlacement(t, b.placement)
	front := httptest.NewServer(server.Handler())
	w := newWorld(t, front.URL)
	w.write(formerly, "")
	w.settle()
	w.others()
	w.claim(onCard())
	b.picture, b.uuids = w.look(), w.uuids
	front.Close()
	check(t, server.Close())
	check(t, os.CopyFS(b.agent, os.DirFS(filepath.Join(w.dir, "state"))))
	return b
}

// again is a copy of it, behind a proxy.
func (b before) again(t *testing.T) (*world, *faulty) {
	t.Helper()
	state := t.TempDir()
	check(t, os.CopyFS(state, os.DirFS(b.placement)))
	server := openPlacement(t, state)
	proxy := &faulty{placement: server.Handler()}
	front := httptest.NewServer(proxy)
	t.Cleanup(func() {
		front.Close()
		check(t, server.Close())
	})
	w := newWorld(t, front.URL)
	w.write(machine(newLayout), "")
	check(t, os.CopyFS(filepath.Join(w.dir, "state"), os.DirFS(b.agent)))
	return w, proxy
}

// TestReshapeUnderFaults: a request of a reshaping start-up fails, each of them in make nightly. At
// any time the node has
// the old layout or the new one, and every consumer holds what it held; the next start completes
// the reshape.
func TestReshapeUnderFaults(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	start := prepare(t)
	clean, proxy := start.again(t)
	clean.settle()
	trace := proxy.requests()
	want := clean.look().timeless()
	post := 0
	for i, request := range trace {
		if request == "POST /reshaper" {
			post = i + 1
		}
	}
	if post == 0 {
		t.Fatalf("a start that reshapes does not: %v", trace)
	}
	t.Logf("%d requests, the reshape is number %d", len(trace), post)
	// Half of those that are drawn are about the reshape itself. A conflict is one always: with no
	// other fault does the journal have the outcome "conflict".
	tried := drawn(t, points/2, len(trace)*len(allFaults))
	refused := slices.IndexFunc(allFaults, func(f fault) bool { return f.body == conflict })
	for _, i := range append(drawn(t, points/2, len(allFaults)), refused) {
		if n := (post-1)*len(allFaults) + i; !slices.Contains(tried, n) {
			tried = append(tried, n)
		}
	}
	for _, n := range tried {
		k, what := n/len(allFaults)+1, allFaults[n%len(allFaults)]
		t.Run(fmt.Sprintf("%02d %s/%s", k, strings.ReplaceAll(trace[k-1], "/", "_"), what.name), func(t *testing.T) {
			w, proxy := start.again(t)
			w.breakAt(proxy, k, what, start, want)
		})
	}
}

// breakAt starts an agent whose k-th request fails, and then one without a fault.
func (w *world) breakAt(proxy *faulty, k int, what fault, start before, want picture) {
	t := w.t
	t.Helper()
	started := make(chan *process, 1)
	proxy.arm(k, what, func() {
		p := <-started
		p.Kill()
	})
	agent := w.run()
	started <- agent
	agent.awaitAny(passDone)
	if len(proxy.requests()) < k {
		t.Fatalf("the agent made %d requests only", len(proxy.requests()))
	}
	switch {
	case what.kill:
		testproc.Equal(t, agent.exit(), -1, "the agent ended with %d")
	default:
		select {
		case <-agent.Done():
			if agent.Code() == -1 {
				t.Error("the agent was killed, and not by this test")
			}
		default:
			agent.stop()
		}
	}
	proxy.arm(0, fault{}, nil)
	w.recover(start, want)
}

// checkJournal: what the journal says agrees with Placement: the reshape happened once, and nothing
// is left open.
func (w *world) checkJournal() {
	w.t.Helper()
	entries := testproc.Try(journal.Read(filepath.Join(w.dir, "state"))).Or(w.t)
	happened := 0
	for _, e := range entries {
		switch {
		case e.Outcome == reportclient.ReshapeHappened:
			happened++
		case !e.Outcome.DidNotHappen():
			w.t.Errorf("journal: reshape %d: outcome %q, %v", e.ID, e.Outcome, e.Err)
		}
	}
	testproc.Equal(w.t, happened, 1, "journal: %d reshapes happened")
}

// between reports a picture that has neither the old layout nor the new one, or in which a consumer
// lost something.
func between(start, now picture) error {
	if diff := cmp.Diff(start.Holding.sums(nil), now.Holding.sums(nil)); diff != "" {
		return fmt.Errorf("sums: %s", diff)
	}
	_, old := now.Inventories["cn1_card"]["VGPU"]
	fresh := len(now.Inventories["cn1_gpu_0"]) > 0
	if old == fresh {
		return fmt.Errorf("inventory: %v", now.Inventories)
	}
	if old {
		if diff := cmp.Diff(start.Holding, now.Holding); diff != "" {
			return fmt.Errorf("the inventory has the old layout and the allocations do not: %s", diff)
		}
		return nil
	}
	for consumer, resources := range now.Holding {
		for _, class := range []string{"VGPU", "VCPU", "MEMORY_MB", "SRIOV_NET_VF"} {
			if resources["cn1"][class]+resources["cn1_card"][class] != 0 {
				return errors.New("the inventory has the new layout, and " +
					consumer + " holds " + class + " where it was")
			}
		}
	}
	return nil
}
