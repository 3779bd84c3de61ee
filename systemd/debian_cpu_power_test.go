// SPDX-License-Identifier: Apache-2.0

package systemd_test

import (
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// The CPU of testCPUPower.
const (
	kernelCPUs = "/sys/devices/system/cpu"
	madeUpCPUs = "/run/made-up-cpus"
	cpuOnline  = "/cpu1/online"
	governor   = "/cpufreq/policy1/scaling_governor"
	frequency  = "/cpufreq/policy1/scaling_max_freq"
)

// testCPUPower: the agent may switch CPUs and choose governors with both files of cpu-power, and
// nothing else there; with none of them, or without the drop-in, it may not. What it may is tried
// in the agent's own view of the files, as its user. The CPUs are copies of the kernel's: those of
// the machine that runs the test are not switched, and a container sees them read-only anyway.
func testCPUPower(t *testing.T, m *machine) {
	m.sh(t, "cp -r "+kernelCPUs+" "+madeUpCPUs+" 2>/dev/null || true; cd "+madeUpCPUs+
		"; mkdir -p cpu1 cpufreq/policy1; echo 1 > ."+
		cpuOnline+"; echo powersave > ."+governor+"; echo 1000 > ."+frequency+
		"; chmod 644 ."+cpuOnline+" ."+governor+" ."+frequency+"; mount --bind "+madeUpCPUs+" "+kernelCPUs)
	restart := func() {
		t.Helper()
		m.run(t, "systemctl", "daemon-reload")
		m.run(t, "systemctl", "restart", agentUnit) // also for the mount
		m.healthy(t, services[0])
	}
	const tmpfiles, dropIn = "/etc/tmpfiles.d/compute-agent-cpu-power.conf",
		"/etc/systemd/system/compute-agent.service.d/cpu-power.conf"
	install := func(name, to string) { m.run(t, "install", "-D", "-m", "644", "/usr/share/compute-agent/"+name, to) }
	// write is what a write of the agent comes to: "" or the reason why it fails.
	write := func(file, value string) string {
		t.Helper()
		out, err := m.try("nsenter", "--target", m.property(t, agentUnit, "MainPID"), "--mount", "--",
			"setpriv", "--reuid=compute-agent", "--regid=compute-agent", "--init-groups", "sh", "-c",
			"echo "+value+" > "+kernelCPUs+file)
		if err == nil {
			return ""
		}
		return out
	}
	expect := func(when, file, value, reason string) {
		t.Helper()
		before := strings.TrimSpace(m.run(t, "cat", kernelCPUs+file))
		got := write(file, value)
		if reason == "" && got != "" || !strings.Contains(got, reason) {
			t.Errorf("%s: a write to %s: %q, want %q", when, file, got, reason)
		}
		if reason == "" {
			before = value
		}
		testproc.Equal(t, strings.TrimSpace(m.run(t, "cat", kernelCPUs+file)), before, "%s: %s is %q", when, file)
	}
	const readOnly, denied = "Read-only file system", "Permission denied"

	restart()
	expect("without the files", cpuOnline, "0", readOnly)
	expect("without the files", governor, "performance", readOnly)
	install("cpu-power-tmpfiles.conf", tmpfiles)
	m.run(t, "systemd-tmpfiles", "--create", "compute-agent-cpu-power.conf")
	restart()
	expect("without the drop-in", cpuOnline, "0", readOnly)
	expect("without the drop-in", governor, "performance", readOnly)
	install("cpu-power.conf", dropIn)
	restart()
	expect("with both", cpuOnline, "0", "")
	expect("with both", governor, "performance", "")
	expect("with both", frequency, "2000", denied)
	m.run(t, "chmod", "644", kernelCPUs+cpuOnline)
	expect("without the rights of tmpfiles", cpuOnline, "1", denied)

	m.remove(t, tmpfiles)
	m.remove(t, dropIn)
	m.run(t, "systemctl", "stop", agentUnit)
	m.run(t, "umount", kernelCPUs)
	m.run(t, "rm", "-r", madeUpCPUs)
	m.run(t, "systemctl", "daemon-reload")
	m.run(t, "systemctl", "start", agentUnit)
	m.healthy(t, services[0])
}
