// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// chaos is the table of a fake driver with faults. Its node is cn1, with the host's identity.
func (e *env) chaos(keys, faults string) string {
	return fmt.Sprintf(`[drivers.chaos]
path = %q
%s
[drivers.chaos.config]
nodes = [{name = "cn1", inventories = {VCPU = {total = 8}}}]
[drivers.chaos.config.faults]
%s
`, filepath.Join(e.dir, "compute-driver-chaos"), keys, faults)
}

// has tells whether a line with all parts was logged after a mark.
func (e *env) has(mark int, parts ...string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
line:
	for line := range strings.Lines(e.log.String()[mark:]) {
		for _, p := range parts {
			if !strings.Contains(line, p) {
				continue line
			}
		}
		return true
	}
	return false
}

const more = "total = 16"

// TestHangingReload: of a driver that does not answer to its new configuration, one message says
// that it did not answer (not that it refused), and it continues with its former configuration.
// That it keeps no other driver waiting: TestHangingReloadIsAlive.
func TestHangingReload(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newEnv(t)
	keys := "timeouts = {configure = \"2s\", stop = \"500ms\"}\nrestart = {health_misses = 100}"
	h.configure(h.chaos(keys, ""), h.node("fake", "cn2", uuidB, ""))
	h.start()
	<-h.ready
	mark := h.mark()
	h.configure(h.chaos(keys, `configure = "hang"`),
		strings.Replace(h.node("fake", "cn2", uuidB, ""), "total = 8", more, 1))
	h.reload <- syscall.SIGHUP
	h.await(mark, "VCPU total 8→16", `"driver":"fake"`)
	h.await(mark, "did not respond to its new configuration", `"driver":"chaos"`)
	h.await(mark, `"condition":"driver-configuration-refused"`, `"driver":"chaos"`, "no response in time")
	h.mu.Lock()
	logged := strings.Count(h.log.String()[mark:], "starting a new process with the new configuration failed too")
	h.mu.Unlock()
	if logged != 1 || h.has(mark, `"driver":"chaos"`, `"state":"backoff"`) {
		t.Errorf("logged %d times, or the old process has ended", logged)
	}
	mark = h.mark()
	h.configure(h.chaos("", ""), h.node("fake", "cn2", uuidB, ""))
	h.reload <- syscall.SIGHUP
	h.await(mark, "resolved", "driver-configuration-refused")
}

// TestHangingDriverIsGone: a driver whose process is well and whose passes hang is gone, too. The
// passes of the other driver go on, also while one hangs. That the watchdog is fed meanwhile:
// TestHangingReloadIsAlive, and for a pass that hangs the tests of the tracker.
func TestHangingDriverIsGone(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newEnv(t)
	const keys = "unavailable_grace = \"1s\"\nrestart = {health_misses = 100}\n"
	// only for calls that hang
	const brief = keys + "timeouts = {nodes = \"500ms\", update = \"500ms\", stop = \"500ms\"}"
	h.configure(h.chaos(keys, ""), h.node("fake", "cn2", uuidB, ""))
	h.start()
	<-h.ready
	id := testproc.Try(os.ReadFile(filepath.Join(h.dir, "state", "compute_id"))).Or(t)
	mark := h.mark()
	h.configure(h.chaos(brief, `update = "hang"`),
		strings.Replace(h.node("fake", "cn2", uuidB, ""), "total = 8", more, 1))
	h.reload <- syscall.SIGHUP
	h.await(mark, "VCPU total 8→16", `"driver":"fake"`)
	h.await(mark, `"operation":"`, disabledTrait, `"node":"cn1"`)
	if !h.isDisabled(strings.TrimSpace(string(id))) || h.isDisabled(uuidB) {
		t.Error("the wrong node is disabled")
	}
	if h.has(mark, `"driver":"chaos"`, `"state":"backoff"`) {
		t.Error("its process is not well")
	}
	mark = h.mark()
	// The call that hangs keeps the process from answering: another one takes over.
	h.configure(h.chaos(keys+"timeouts = {configure = \"5s\"}", ""), h.node("fake", "cn2", uuidB, ""))
	h.reload <- syscall.SIGHUP
	h.await(mark, `"operation":"`, disabledTrait, `"node":"cn1"`)
	if h.isDisabled(strings.TrimSpace(string(id))) {
		t.Error("it is disabled still")
	}
}

// TestTimeoutsFollowAReload: the deadlines and the restart policy of a driver are changed without a
// restart of its process.
func TestTimeoutsFollowAReload(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newEnv(t)
	file := filepath.Join(h.dir, "go")
	config := fmt.Sprintf("update = \"wait\"\nfile = %q", file)
	check(t, os.WriteFile(file, nil, 0o600))
	h.configure(h.chaos(`timeouts = {update = "1h"}`, config))
	h.start()
	<-h.ready
	pid := h.pid("chaos")
	mark := h.mark()
	h.configure(h.chaos("timeouts = {update = \"150ms\"}\nrestart = {health_misses = 7}", config))
	h.reload <- syscall.SIGHUP
	h.await(mark, "drivers.chaos.restart.health_misses", `"to":"7"`)
	h.await(mark, "The plugin was configured again")
	if h.pid("chaos") != pid {
		t.Error("the process was restarted")
	}
	// A call that had begun before keeps the former limit: it ends, and another pass follows.
	h.await(h.after(mark, "The plugin was configured again"), "Finished the pass")
	check(t, os.Remove(file))
	h.reload <- syscall.SIGHUP
	h.await(mark, "no response in time (limit 150ms)", `"state":"backoff"`, "7 consecutive calls got no response")
	check(t, os.WriteFile(file, nil, 0o600))
	h.await(mark, "The node is reported again")
}

// TestChangedExecutable: a reload takes a new executable into service, and no pass fails meanwhile,
// of this driver or of another.
func TestChangedExecutable(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newEnv(t)
	h.configure(h.chaos("", ""), h.node("fake", "cn2", uuidB, ""))
	h.start()
	<-h.ready
	mark := h.mark()
	path := filepath.Join(h.dir, "compute-driver-chaos")
	content := testproc.Try(os.ReadFile(path)).Or(t)
	check(t, testproc.WriteExecutable(path+".new", content))
	check(t, os.Rename(path+".new", path))
	h.reload <- syscall.SIGHUP
	h.await(mark, "Reload: no setting changed", "restarted if their executable changed")
	h.await(mark, "A new process of the plugin takes over", `"driver":"chaos"`, `"reason":"the executable changed"`)
	mark2 := h.mark()
	h.configure(h.chaos("", ""), strings.Replace(h.node("fake", "cn2", uuidB, ""), "total = 8", more, 1))
	h.reload <- syscall.SIGHUP // and again: nothing changed on disk
	h.await(mark2, "VCPU total 8→16")
	h.await(mark2, "The plugin was configured again", `"driver":"chaos"`)
	if h.has(mark, "The pass failed") || h.has(mark, `"state":"backoff"`) {
		t.Error("a pass failed")
	}
	if h.has(mark2, "takes over") {
		t.Error("the same executable was started again")
	}
	for _, d := range h.status().Drivers {
		if want := map[string]int{"chaos": 1}[d.Name]; d.Plugin.Restarts != 0 || d.Plugin.Replacements != want {
			t.Errorf("driver %s was restarted %d times, and replaced %d times",
				d.Name, d.Plugin.Restarts, d.Plugin.Replacements)
		}
	}
}
