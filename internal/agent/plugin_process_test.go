// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/health"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// status is what the agent says of itself.
func (e *env) status() health.Status {
	e.t.Helper()
	s, err := control.NewClient(config.Agent{RuntimeDir: filepath.Join(e.dir, "run")}.ControlSocket()).
		Status(e.t.Context())
	check(e.t, err)
	return s
}

// TestStatusAsksWhetherPlacementIsThere: the status of an agent whose next pass is an hour away
// says at once that Placement is gone.
func TestStatusAsksWhetherPlacementIsThere(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newEnv(t)
	h.configure(h.node("fake", "cn1", uuidA, ""))
	file := filepath.Join(h.dir, "agent.toml")
	text := string(testproc.Try(os.ReadFile(file)).Or(t))
	text = strings.Replace(text, `update_resources_interval = "100ms"`, `update_resources_interval = "1h"`, 1)
	check(t, os.WriteFile(file, []byte(text), 0o600))
	h.start()
	<-h.ready
	const reporting, gone = "reporting 1 node", "Placement cannot be reached now: "
	if s := h.status().Summary; !strings.Contains(s, reporting) || strings.Contains(s, gone) {
		t.Errorf("with Placement: %s", s)
	}
	h.stopPlacement()
	if s := h.status().Summary; strings.Contains(s, "all is well") || !strings.Contains(s, gone) {
		t.Errorf("without Placement: %s", s)
	}
}

// TestTakeoverThatFails: it is reported as a failed takeover, with a fix and under the driver's
// name, and not as a configuration that the driver refuses. The former process goes on, and the
// condition goes when the takeover succeeds.
func TestTakeoverThatFails(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newEnv(t)
	h.configure(h.node("fake", "cn1", uuidA, ""))
	h.start()
	<-h.ready
	process := func() int { return h.status().Drivers[0].Plugin.PID }
	pid := process()
	content := testproc.Try(os.ReadFile(h.driver)).Or(t)
	put := func(content []byte, mode os.FileMode) {
		t.Helper()
		check(t, os.WriteFile(h.driver+".new", content, mode))
		check(t, os.Chmod(h.driver+".new", mode))
		check(t, os.Rename(h.driver+".new", h.driver))
	}
	for _, c := range []struct {
		name, keys, hint string
		content          []byte
		mode             os.FileMode
	}{
		{"a mode", "", "chmod go-w " + h.driver + ", then systemctl reload compute-agent", content, 0o777},
		{"a digest", fmt.Sprintf("sha256 = %q", strings.Repeat("0", 64)),
			"put the new sum into drivers.fake.sha256; if not, install the driver's package again, then", content,
			0o755},
		{"no handshake", `timeouts = {start = "1s"}`,
			"plugin info " + h.driver, []byte("#!/bin/sh\nexec sleep 60\n"), 0o755},
		{"an exit", "", "plugin info " + h.driver, []byte("#!/bin/sh\nexit 3\n"), 0o755},
	} {
		mark := h.mark()
		put(c.content, c.mode)
		h.configure(h.node("fake", "cn1", uuidA, c.keys))
		h.reload <- syscall.SIGHUP
		h.await(mark, `"condition":"driver-takeover-failed"`, `"driver":"fake"`, c.hint)
		if h.has(mark, "driver-configuration-refused") || h.has(mark, "NAME") || process() != pid {
			t.Errorf("%s: it is reported as something else, or the former process is gone", c.name)
		}
		mark = h.mark()
		put(content, 0o755)
		h.configure(h.node("fake", "cn1", uuidA, ""))
		h.reload <- syscall.SIGHUP
		h.await(mark, "resolved", "driver-takeover-failed")
		testproc.Eventually(t, testproc.Patience, "the new process is the driver's", testproc.True(func() bool {
			now := process()
			return now != 0 && now != pid
		}))
		pid = process()
	}
	if p := h.status().Drivers[0].Plugin; p.Restarts != 0 || p.Replacements != 4 {
		t.Errorf("restarted %d times, replaced %d times", p.Restarts, p.Replacements)
	}
}

// TestWrongDigestIsRefused: a driver whose executable is not the pinned one never ran, so it did
// not crash. The condition has both digests and the key to correct, no start is tried meanwhile,
// and a reload with the right digest has it run.
func TestWrongDigestIsRefused(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newEnv(t)
	content := testproc.Try(os.ReadFile(h.driver)).Or(t)
	is, demanded := fmt.Sprintf("%x", sha256.Sum256(content)), strings.Repeat("0", 64)
	h.configure(h.node("fake", "cn1", uuidA, fmt.Sprintf("sha256 = %q", demanded)))
	h.start()
	h.await(0, `"condition":"plugin-refused"`, h.driver,
		"has sha256 "+is+", the configuration demands "+demanded, "drivers.fake.sha256")
	p := h.status().Drivers[0].Plugin
	if p.State != "refused" || p.PID != 0 || !p.NextAttempt.IsZero() || p.Usage != nil ||
		h.has(0, "plugin-quarantined") || h.has(0, `"state":"backoff"`) {
		t.Errorf("plugin: %+v", p)
	}
	mark := h.mark()
	h.configure(h.node("fake", "cn1", uuidA, fmt.Sprintf("sha256 = %q", is)))
	h.reload <- syscall.SIGHUP
	h.await(mark, "resolved", "plugin-refused")
	h.await(mark, `"state":"healthy"`, `"driver":"fake"`)
	if u := h.status().Drivers[0].Plugin.Usage; u == nil ||
		u.Processes != 1 || u.Threads < 2 || u.MemoryBytes < 1<<20 || u.OpenFiles < 4 {
		t.Errorf("what the process uses: %+v", u)
	}
}

// TestRefusedByTheNewProcess: if the process that is to take over refuses the configuration, the
// condition says that.
func TestRefusedByTheNewProcess(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newEnv(t)
	h.configure(h.node("fake", "cn1", uuidA, ""))
	h.start()
	<-h.ready
	mark := h.mark()
	h.configure(h.node("fake", "cn1", uuidA, `env = {A = "b"}`) + "nonsense = 1\n")
	h.reload <- syscall.SIGHUP
	h.await(mark, `"condition":"driver-configuration-refused"`, "nonsense", "fix [drivers.fake.config], then")
}

// TestPanickingDriverIsDegraded: its process is well, the log has one stack, and status says that
// something is wrong.
func TestPanickingDriverIsDegraded(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newEnv(t)
	const keys = "restart = {health_interval = \"1s\", health_misses = 100}\ntimeouts = {health = \"900ms\"}"
	h.configure(h.chaos(keys, ""))
	h.start()
	<-h.ready
	mark := h.mark()
	h.configure(h.chaos(keys, `update = "panic"`))
	h.reload <- syscall.SIGHUP
	h.await(mark, `"state":"degraded"`, "UpdateProviderTree cn1 always ends with a fault of the driver",
		"a defect of the driver")
	h.await(mark, `"times":8`)
	h.mu.Lock()
	stacks := strings.Count(h.log.String()[mark:], `"stack":`)
	h.mu.Unlock()
	if p := h.status().Drivers[0].Plugin; p.State != "degraded" ||
		!strings.Contains(p.Error, "panicked in UpdateProviderTree") || p.Restarts != 0 || stacks != 1 {
		t.Errorf("%d stacks, plugin: %+v", stacks, p)
	}
	mark = h.mark()
	h.configure(h.chaos(keys, ""))
	h.reload <- syscall.SIGHUP
	h.await(mark, `"state":"healthy"`, `"from":"degraded"`)
}

// TestEachDriverHasADirectory: its own, below the state directory, unreadable for other users; it
// outlives the driver.
func TestEachDriverHasADirectory(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newEnv(t)
	own := func(driver string) string { return filepath.Join(h.dir, "state", "drivers", driver) }
	h.configure(h.node("fake", "cn1", uuidA, ""))
	h.start()
	<-h.ready
	mark := h.mark()
	h.configure(h.node("fake", "cn1", uuidA, ""), h.node("second", "cn2", uuidB, ""))
	h.reload <- syscall.SIGHUP
	h.await(mark, `"operation":"`, "cn2")
	for _, driver := range []string{"fake", "second"} {
		if st, err := os.Stat(own(driver)); err != nil || st.Mode() != os.ModeDir|0o700 {
			t.Errorf("%s: %v, %v", driver, st, err)
		}
	}
	mark = h.mark()
	h.configure(h.node("fake", "cn1", uuidA, ""))
	h.reload <- syscall.SIGHUP
	h.await(mark, "the driver is disabled")
	if _, err := os.Stat(own("second")); err != nil {
		t.Error(err)
	}
	mark = h.mark()
	check(t, os.WriteFile(own("third"), nil, 0o600))
	h.configure(h.node("fake", "cn1", uuidA, ""), h.node("third", "cn3", "", ""))
	h.reload <- syscall.SIGHUP
	h.await(mark, `"condition":"state-directory-not-writable"`, own("third")+" is not a directory")
}

// TestMachinesOfAFormerReleaseGoWithTheirDriver: they were in the directory that all drivers shared
// with the agent.
func TestMachinesOfAFormerReleaseGoWithTheirDriver(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newEnv(t)
	shared := filepath.Join(h.dir, "state", "machines")
	check(t, os.MkdirAll(shared, 0o700))
	check(t, os.WriteFile(filepath.Join(shared, uuidB+".json"),
		[]byte(`{"uuid":"`+uuidB+`","node":"cn1","complete":true}`), 0o600))
	h.configure(h.node("fake", "cn1", uuidA, ""))
	h.start()
	<-h.ready
	if _, err := os.Stat(filepath.Join(h.dir, "state", "drivers", "fake", "machines", uuidB+".json")); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(shared); err != nil && !os.IsNotExist(err) || len(left) > 0 {
		t.Errorf("the shared directory has %v, %v", left, err)
	}
}

// TestATraitThatIsLeftOut: a trait that was not sent to Placement is not logged as sent.
func TestATraitThatIsLeftOut(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newEnv(t)
	const unknown = "HW_NO_SUCH_TRAIT"
	h.configure(strings.Replace(h.node("fake", "cn1", uuidA, ""), "inventories", `traits = ["`+unknown+
		`", "HW_CPU_X86_AVX2"], inventories`, 1))
	h.start()
	<-h.ready
	h.await(0, "Placement does not know this standard trait", unknown)
	h.await(0, `"operation":"`, "+HW_CPU_X86_AVX2")
	if h.has(0, `"operation":"`, unknown) ||
		strings.Contains(fmt.Sprint(h.status().Drivers[0].Report.Nodes[0].Changes), unknown) {
		t.Error("the trait is reported as written to Placement")
	}
}
