// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// diskFault is what happens at one call that changes or syncs a file of the agent's state.
type diskFault struct {
	name string
	// before and after: the agent is killed then.
	before, after bool
	// power: what was not synced is lost then.
	power bool
	errno syscall.Errno
	// lasting: every later call fails too, until the agent is killed when it has tried for a while.
	lasting bool
}

var diskFaults = []diskFault{
	{name: "killed before", before: true},
	{name: "killed after", after: true},
	{name: "power cut", after: true, power: true},
	{name: "no space left", errno: syscall.ENOSPC},
	{name: "input or output error", errno: syscall.EIO},
	{name: "read-only from now on", errno: syscall.EROFS, lasting: true},
}

// patientFailures is how many calls fail before the agent with a disk that stays broken is killed.
const patientFailures = 8

// at is the verdict on the n-th call if the fault is at the k-th.
func (f diskFault) at(k, n int) diskVerdict {
	switch {
	case f.lasting && n >= k+patientFailures:
		return diskVerdict{kill: true}
	case n == k, f.lasting && n > k:
		return diskVerdict{errno: f.errno, kill: f.before || f.after, first: f.after}
	}
	return diskVerdict{}
}

// runWatched starts an agent with a watch over its state directory.
func (w *world) runWatched(judge func(n int, e diskEvent) diskVerdict) (*process, *diskWatch) {
	w.t.Helper()
	watch := &diskWatch{dir: filepath.Join(w.dir, "state"), judge: judge}
	return watched(w.t, watch, "compute-agent", "run", "--config", w.config), watch
}

// TestReshapeUnderDiskFaults: at a call of a reshaping start-up that creates, renames, removes
// or syncs something of the agent's state, it is killed before or after it, the power is cut, or
// the call fails. At any time the node has the old layout or the new one, and every consumer holds
// what it held; the next start completes the reshape, and the journal is right.
func TestReshapeUnderDiskFaults(t *testing.T) {
	testproc.Drawn(t, 2)
	testproc.Parallel(t, testproc.Light)
	start := prepare(t)
	clean, _ := start.again(t)
	agent, watch := clean.runWatched(func(int, diskEvent) diskVerdict { return diskVerdict{} })
	agent.awaitAny(passDone)
	events := watch.seen()
	agent.stop()
	want := clean.look().timeless()
	ops := inWords(events)
	syncs, renames := strings.Count(strings.Join(ops, "\n"), "fsync "),
		strings.Count(strings.Join(ops, "\n"), "rename ")
	if syncs < 4 || renames < 2 { // the journal's two entries, each synced with its directory
		t.Fatalf("a start that reshapes makes %d syncs and %d renames of its state: %v", syncs, renames, ops)
	}
	t.Logf("%d calls: %s", len(ops), strings.Join(ops, ", "))
	for _, n := range drawn(t, points, len(ops)*len(diskFaults)) {
		k, what := n/len(diskFaults)+1, diskFaults[n%len(diskFaults)]
		t.Run(fmt.Sprintf("%02d %s/%s", k, ops[k-1], what.name), func(t *testing.T) {
			w, _ := start.again(t)
			w.breakDiskAt(k, what, start, want)
		})
	}
}

// someUUID is what the names of events have instead of a uuid.
var someUUID = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[A-Z2-7]{26}`)

func inWords(events []diskEvent) []string {
	var ops []string
	for _, e := range events {
		ops = append(ops, someUUID.ReplaceAllString(e.String(), "#"))
	}
	return ops
}

// breakDiskAt starts an agent whose k-th call fails, and then one without a fault.
func (w *world) breakDiskAt(k int, what diskFault, start before, want picture) {
	t := w.t
	t.Helper()
	agent, watch := w.runWatched(func(n int, _ diskEvent) diskVerdict { return what.at(k, n) })
	agent.awaitAny(passDone)
	if n := len(watch.seen()); n < k {
		t.Fatalf("the agent made %d calls only", n)
	}
	select {
	case <-agent.Done():
		if (what.before || what.after) && agent.Code() != -1 {
			t.Errorf("the agent ended with %d", agent.Code())
		}
	default:
		agent.stop()
	}
	if what.power {
		check(t, watch.platter.cut())
	}
	w.recover(start, want)
}

// recover checks the state after a fault, and starts the agent again.
func (w *world) recover(start before, want picture) {
	t := w.t
	t.Helper()
	testproc.NoErrorf(t, between(start.picture, w.look()), "after the fault")
	w.settle()
	after := w.look()
	testproc.Samef(t, cmp.Diff(want, after.timeless()), "after the next start")
	testproc.Equal(t, w.settle(), 0, "%d writes at the start after that")
	w.checkJournal()
}

// TestFirstStartUnderDiskFaults: a host that has no state yet never loses an identity that it has
// written to Placement, and never gets two.
func TestFirstStartUnderDiskFaults(t *testing.T) {
	testproc.Drawn(t, 2)
	testproc.Parallel(t, testproc.Light)
	server := openPlacement(t, t.TempDir())
	t.Cleanup(func() { check(t, server.Close()) })
	url := serve(t, server.Handler())
	newHost := func(t *testing.T, name string) *world {
		w := newWorld(t, url)
		w.write(`nodes = [{name = "`+name+`", inventories = {VCPU = {total = 8}}}]`, "")
		return w
	}
	clean := newHost(t, "clean")
	agent, watch := clean.runWatched(func(int, diskEvent) diskVerdict { return diskVerdict{} })
	agent.awaitAny(passDone)
	ops := inWords(watch.seen())
	agent.stop()
	if !slices.Contains(ops, "link "+resourcetracker.IdentityFile) {
		t.Fatalf("a first start makes no identity: %v", ops)
	}
	t.Logf("%d calls: %s", len(ops), strings.Join(ops, ", "))
	for _, n := range drawn(t, points, len(ops)*len(diskFaults)) {
		k, what := n/len(diskFaults)+1, diskFaults[n%len(diskFaults)]
		t.Run(fmt.Sprintf("%02d %s/%s", k, ops[k-1], what.name), func(t *testing.T) {
			name := fmt.Sprintf("cn-%d", n)
			w := newHost(t, name)
			agent, watch := w.runWatched(func(n int, _ diskEvent) diskVerdict { return what.at(k, n) })
			agent.awaitAny(passDone)
			if n := len(watch.seen()); n < k {
				t.Fatalf("the agent made %d calls only", n)
			}
			agent.Kill()
			if what.power {
				check(t, watch.platter.cut())
			}
			told := w.uuidOf(name)
			w.settle()
			id := testproc.Try(os.ReadFile(filepath.Join(w.dir, "state", resourcetracker.IdentityFile))).Or(t)
			now := w.uuidOf(name)
			if now != strings.TrimSpace(string(id)) || told != "" && now != told {
				t.Errorf("Placement got %q, and has %q; the identity is %q", told, now, id)
			}
			testproc.Equal(t, w.settle(), 0, "%d writes at the start after that")
		})
	}
}

// uuidOf is the uuid of a provider, or "".
func (w *world) uuidOf(name string) string {
	w.t.Helper()
	var list struct {
		Providers []struct{ UUID string } `json:"resource_providers"`
	}
	w.must("GET", "/resource_providers?name="+name, nil, &list)
	if len(list.Providers) == 0 {
		return ""
	}
	return list.Providers[0].UUID
}
