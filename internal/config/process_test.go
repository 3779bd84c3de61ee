// SPDX-License-Identifier: Apache-2.0

package config

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestProcess: what a driver's own tables and variables say goes before [plugins], key by key.
func TestProcess(t *testing.T) {
	dir := write(t, map[string]string{"compute-agent.toml": `
[plugins]
call_timeout = "45s"
health_misses = 7
[drivers.slow]
unavailable_grace = "0s"
restart = {backoff_max = "4m", crash_limit = 9}
[drivers.slow.timeouts]
update = "5m"
[drivers.plain]
`, "conf.d/a.toml": "[drivers.slow.timeouts]\nstart = \"1m\"\n"})
	c := mustLoad(t, machine(dir, "COMPUTE_AGENT_DRIVERS_SLOW_TIMEOUTS_INSTANCE=1h",
		"COMPUTE_AGENT_DRIVERS_SLOW_RESTART_HEALTH_INTERVAL=20s"))
	timeouts, restart := c.Process("slow")
	if diff := cmp.Diff(DriverTimeouts{
		Start: time.Minute, Configure: 45 * time.Second, Nodes: 45 * time.Second, Update: 5 * time.Minute,
		Health: 3 * time.Second, Stop: 10 * time.Second, Instance: time.Hour,
	}, timeouts); diff != "" {
		t.Errorf("timeouts (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(DriverRestart{
		HealthInterval: 20 * time.Second, HealthMisses: 7,
		BackoffMin: time.Second, BackoffMax: 4 * time.Minute, CrashLimit: 9,
		CrashWindow: 10 * time.Minute, Quarantine: 10 * time.Minute,
	}, restart); diff != "" {
		t.Errorf("restart (-want +got):\n%s", diff)
	}
	timeouts, restart = c.Process("plain")
	if timeouts.Start != 30*time.Second || timeouts.Update != 45*time.Second || timeouts.Instance != 0 ||
		restart.HealthMisses != 7 || restart.CrashLimit != 5 {
		t.Errorf("without tables of its own: %+v, %+v", timeouts, restart)
	}
	if c.Drivers["slow"].UnavailableGrace != 0 || c.Drivers["plain"].UnavailableGrace != 10*time.Minute {
		t.Errorf("graces: %v, %v", c.Drivers["slow"].UnavailableGrace, c.Drivers["plain"].UnavailableGrace)
	}
	for key, want := range map[string]string{
		"drivers.slow.timeouts.update":         dir + ":9",
		"drivers.slow.timeouts.start":          filepath.Dir(dir) + "/conf.d/a.toml:2",
		"drivers.slow.restart.crash_limit":     dir + ":7",
		"drivers.slow.timeouts.instance":       "environment COMPUTE_AGENT_DRIVERS_SLOW_TIMEOUTS_INSTANCE",
		"drivers.plain.restart.health_misses":  "default",
		"drivers.slow.restart.health_interval": "environment COMPUTE_AGENT_DRIVERS_SLOW_RESTART_HEALTH_INTERVAL",
	} {
		if s, ok := c.Source(key); !ok || s.String() != want {
			t.Errorf("source of %s is %v, want %s", key, s, want)
		}
	}
}
