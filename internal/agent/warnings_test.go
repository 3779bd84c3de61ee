// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"strings"
	"syscall"
	"testing"

	"github.com/compute-agent/compute-agent/internal/health"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestWarningsAreNoFailure: a driver that warns is healthy, and what it warns of is in the log
// once, in the status and one condition. A process that is started again and warns of the same
// changes nothing.
func TestWarningsAreNoFailure(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newEnv(t)
	const keys = "restart = {health_interval = \"1s\", health_misses = 100}\ntimeouts = {health = \"900ms\"}"
	warning := h.node("fake", "cn1", uuidA, keys) +
		`warnings = {"numa-memory" = "it differs", "gpu-clock" = "GPU 0\nis slow"}` + "\n"
	h.configure(warning)
	h.start()
	<-h.ready
	h.await(0, `"level":"warn"`, `"driver":"fake"`, `"warning":"numa-memory"`, "it differs")
	s := h.status()
	d := s.Drivers[0]
	if len(d.Warnings) != 2 || d.Warnings[0].Name != "gpu-clock" || d.Warnings[0].Text != "GPU 0; is slow" ||
		d.Warnings[0].Since.IsZero() {
		t.Errorf("warnings: %+v", d.Warnings)
	}
	if d.Plugin.State != "healthy" || d.Plugin.Error != "" || s.State != resourcetracker.Reporting {
		t.Errorf("the driver is %s (%s), the agent %s", d.Plugin.State, d.Plugin.Error, s.State)
	}
	if len(s.Conditions) != 1 || s.Conditions[0].Code != health.DriverWarnings ||
		s.Conditions[0].Severity != health.Warning || s.Conditions[0].Text != "2: gpu-clock, numa-memory" {
		t.Errorf("conditions: %v", s.Conditions)
	}
	check(t, syscall.Kill(d.Plugin.PID, syscall.SIGKILL))
	h.await(0, `"state":"healthy"`, `"restarts":1`)
	mark := h.mark()
	h.configure(strings.Replace(warning, `"numa-memory" = "it differs", `, "", 1))
	h.reload <- syscall.SIGHUP
	h.await(mark, `"level":"info"`, `"warning":"numa-memory"`, "has ended")
	h.mu.Lock()
	log := h.log.String()
	h.mu.Unlock()
	if begun, over := strings.Count(log, "The driver warns: "),
		strings.Count(log, "warning numa-memory has ended"); begun != 2 || over != 1 {
		t.Errorf("%d warnings are logged to begin, %d to be over", begun, over)
	}
	if w := h.status().Drivers[0].Warnings; len(w) != 1 || !w[0].Since.Equal(d.Warnings[0].Since) {
		t.Errorf("after a restart: %+v, it began %v", w, d.Warnings[0].Since)
	}
}
