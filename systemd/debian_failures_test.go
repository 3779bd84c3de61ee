// SPDX-License-Identifier: Apache-2.0

package systemd_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// restarted waits until systemd has restarted services more often than before.
func (m *machine) restarted(t *testing.T, before map[string]int) {
	t.Helper()
	for _, s := range services {
		eventually(t, s.unit+" to be restarted", func() error {
			if n := m.number(t, s.unit, "NRestarts"); n <= before[s.unit] {
				return fmt.Errorf("%d restarts, state %s, result %s",
					n, m.property(t, s.unit, "ActiveState"), m.property(t, s.unit, "Result"))
			}
			return nil
		})
	}
	m.healthy(t, services...)
}

func (m *machine) restarts(t *testing.T) map[string]int {
	t.Helper()
	out := map[string]int{}
	for _, s := range services {
		out[s.unit] = m.number(t, s.unit, "NRestarts")
	}
	return out
}

// ends is how often the journal says that the main process of a unit ended so.
func (m *machine) ends(t *testing.T, unit, how string) int {
	t.Helper()
	return strings.Count(m.journal(t, unit), "Main process exited, "+how)
}

// testCrash: whatever kills a service, it is restarted. All but SIGKILL end a Go program with exit
// status 2.
func testCrash(t *testing.T, m *machine) {
	const crash = "code=exited, status=2/INVALIDARGUMENT"
	for _, kind := range []struct{ signal, how string }{{"SEGV", crash}, {"ABRT", crash}, {"QUIT", crash},
		{"KILL", "code=killed, status=9/KILL"}} {
		ok := t.Run("SIG"+kind.signal, func(t *testing.T) {
			before, ended := m.restarts(t), map[string]int{}
			for _, s := range services {
				ended[s.unit] = m.ends(t, s.unit, kind.how)
				m.run(t, "systemctl", "kill", "--kill-whom=main", "--signal="+kind.signal, s.unit)
			}
			m.restarted(t, before)
			for _, s := range services {
				eventually(t, "the journal to say how "+s.unit+" ended", func() error {
					if more := m.ends(t, s.unit, kind.how) - ended[s.unit]; more != 1 {
						return fmt.Errorf("it has %d more lines, want 1: Main process exited, %s", more, kind.how)
					}
					return nil
				})
			}
		})
		if !ok {
			return
		}
	}
}

// testWatchdog: a service that hangs is aborted after WatchdogSec=, and restarted.
func testWatchdog(t *testing.T, m *machine) {
	before := m.restarts(t)
	for _, s := range services {
		m.run(t, "systemctl", "kill", "--kill-whom=main", "--signal=STOP", s.unit)
	}
	m.restarted(t, before)
	for _, s := range services {
		if journal := m.journal(t, s.unit); !strings.Contains(journal, "Watchdog timeout") {
			t.Errorf("%s was not restarted because of its watchdog:\n%s", s.unit, journal)
		}
	}
}

// testLimits: the limits of the units are in force. The memory of the heap follows the group's,
// where this machine has a controller for it.
func testLimits(t *testing.T, m *machine) {
	for _, s := range services {
		limits := m.run(t, "cat", "/proc/"+m.property(t, s.unit, "MainPID")+"/limits")
		if want := "Max core file size 0 0 bytes"; !strings.Contains(strings.Join(strings.Fields(limits), " "), want) {
			t.Errorf("%s has other limits than %q:\n%s", s.unit, want, limits)
		}
		for name, none := range map[string]string{"MemoryMax": "infinity",
			"TasksMax": "infinity", "LimitNOFILE": "524288"} {
			if value := m.property(t, s.unit, name); value == none {
				t.Errorf("%s has %s=%s, which is no limit of ours", s.unit, name, value)
			}
		}
	}
	group := strings.TrimSpace(m.property(t, placementUnit, "ControlGroup"))
	if _, err := m.try("test", "-e", "/sys/fs/cgroup"+group+"/memory.max"); err != nil {
		t.Log("The control groups of this machine have no controller for memory: GOMEMLIMIT is not checked.")
		return
	}
	metrics := m.run(t, "curl", "-sSf", "--unix-socket",
		"/run/compute-agent-placement/placement-admin.sock", "http://placement/metrics")
	if want := "go_gc_gomemlimit_bytes 3.865470"; !strings.Contains(metrics, want) { // nine tenths of 4 GiB
		t.Errorf("the metrics of Placement do not have %s", want)
	}
}

// testWrong: configuration and usage that are wrong are not tried again, and the exit status says
// which it is.
func testWrong(t *testing.T, m *machine) {
	const file = "/etc/compute-agent/conf.d/50-wrong.toml"
	m.write(t, file, "[log]\nno_such_key = 1\n")
	m.stays(t, 78)
	m.remove(t, file)

	dropIns := map[string]string{
		agentUnit: "run", placementUnit: "placement serve",
		apiUnit: "cells api", "compute-agent-cell@.service": "cells serve --name %i",
	}
	for unit, command := range dropIns {
		m.write(t, "/etc/systemd/system/"+unit+".d/50-wrong.conf",
			"[Service]\nExecStart=\nExecStart=/usr/bin/compute-agent "+command+" --no-such-flag\n")
	}
	m.run(t, "systemctl", "daemon-reload")
	m.stays(t, 64)
	for unit := range dropIns {
		m.remove(t, "/etc/systemd/system/"+unit+".d/50-wrong.conf")
	}
	m.run(t, "systemctl", "daemon-reload")
	m.forgive(t)
	m.run(t, "systemctl", "restart", cell0Unit, cell1Unit, apiUnit, placementUnit, agentUnit)
	m.healthy(t, services...)
}

// forgive has Placement started again after its socket, which starts a failed one as long as a
// client waits, has reached the limit of starts. A systemd of after 252 counts starts by command,
// too.
func (m *machine) forgive(t *testing.T) {
	t.Helper()
	m.run(t, "systemctl", "reset-failed", socketUnit, placementUnit)
}

// stays restarts all services, which must end with a code and stay failed. A client that waits at
// Placement's socket does not have it started forever.
func (m *machine) stays(t *testing.T, code int) {
	t.Helper()
	m.forgive(t)
	for _, s := range services {
		if out, err := m.try("systemctl", "restart", s.unit); err == nil {
			t.Errorf("%s starts: %s", s.unit, out)
		}
	}
	_, _ = m.try("curl", "-s", "-m", "30", "http://127.0.0.1:8778/")
	for _, s := range services {
		eventually(t, s.unit+" to fail", func() error {
			if state := m.property(t, s.unit, "ActiveState"); state != "failed" {
				return fmt.Errorf("it is %s", state)
			}
			return nil
		})
		testproc.Equal(t, m.number(t, s.unit, "ExecMainStatus"), code, "%s ended with %d", s.unit)
		testproc.Equal(t, m.number(t, s.unit, "NRestarts"), 0, "%s was restarted %d times", s.unit)
		status, _ := m.try("systemctl", "--no-pager", "status", s.unit)
		if !strings.Contains(status, fmt.Sprintf("status=%d/", code)) {
			t.Errorf("systemctl status %s does not show the exit status %d:\n%s", s.unit, code, status)
		}
	}
	eventually(t, "Placement's socket to give up", func() error {
		if state := m.property(t, socketUnit, "ActiveState"); state != "failed" {
			return fmt.Errorf("it is %s", state)
		}
		return nil
	})
}

// testRefusal: an agent that refuses to start, to protect data, is left alone.
func testRefusal(t *testing.T, m *machine) {
	const file = "/var/lib/compute-agent/compute_id"
	m.run(t, "systemctl", "stop", agentUnit)
	m.sh(t, "cp -a "+file+" /root/compute_id; echo aaaaaaaa-0000-4000-8000-000000000001 >"+file)
	if out, err := m.try("systemctl", "start", agentUnit); err == nil {
		t.Errorf("the agent starts as another host: %s", out)
	}
	if state, code := m.property(t, agentUnit, "ActiveState"),
		m.number(t, agentUnit, "ExecMainStatus"); state != "failed" || code != 3 {
		t.Errorf("the agent is %s and ended with %d, want failed and 3", state, code)
	}
	m.run(t, "cp", "-a", "/root/compute_id", file)
	m.run(t, "systemctl", "start", agentUnit)
	m.healthy(t, services...)
}

// testLateDisk: more than ten failures in a row, of which clients of Placement learn, and then what
// was missing is there.
func testLateDisk(t *testing.T, m *machine) {
	m.run(t, "systemctl", "stop", agentUnit, apiUnit, cell1Unit, socketUnit, placementUnit)
	readOnly := []string{"/var/lib/compute-agent", "/var/lib/compute-agent-placement"}
	for _, dir := range readOnly {
		m.run(t, "mount", "--bind", dir, dir)
		m.run(t, "mount", "-o", "remount,bind,ro", dir)
	}
	m.sh(t, "mkdir /root/away; mv /etc/compute-agent/compute-api.toml /etc/compute-agent/cell1.toml /root/away")
	for _, s := range services {
		_, _ = m.try("systemctl", "start", s.unit)
	}
	for _, s := range services {
		eventually(t, s.unit+" to fail more than ten times", func() error {
			if n := m.number(t, s.unit, "NRestarts"); n <= 10 {
				return fmt.Errorf("%d restarts, state %s", n, m.property(t, s.unit, "ActiveState"))
			}
			return nil
		})
	}
	// Its socket stays open. A client is answered by the start that fails next.
	if code, _ := m.try("curl", "-sS", "-m", "60", "-o",
		"/dev/null", "-w", "%{http_code}", "http://127.0.0.1:8778/"); code != "503" {
		t.Errorf("while Placement cannot start, a client gets %s, want 503", code)
	}
	for _, dir := range readOnly {
		m.run(t, "mount", "-o", "remount,bind,rw", dir)
	}
	m.sh(t, "mv /root/away/* /etc/compute-agent")
	m.healthy(t, services...)
	// a service requires the mounts below its state directory: without it, the mount can go
	for _, dir := range readOnly {
		m.run(t, "umount", "--lazy", dir)
	}
	// Not restart: the job of the socket has failed beside that of its service.
	m.run(t, "systemctl", "stop", agentUnit, placementUnit, socketUnit)
	m.run(t, "systemctl", "start", socketUnit, placementUnit, agentUnit)
	m.healthy(t, services...)
}

// testCredentials: Placement wants a token, and both sides have theirs from systemd, which reads
// files that only root can.
func testCredentials(t *testing.T, m *machine) {
	m.sh(t, `cd /etc/compute-agent/credentials; umask 077
		compute-agent token new --roles service --user compute-agent --project service --out placement-token >tokens`)
	token := strings.TrimSpace(m.run(t, "cat", "/etc/compute-agent/credentials/placement-token"))
	m.write(t, "/etc/systemd/system/"+placementUnit+".d/50-token.conf",
		"[Service]\nLoadCredential=tokens:/etc/compute-agent/credentials/tokens\nExecStart=\n"+
			"ExecStart=/usr/bin/compute-agent placement serve --state-dir /var/lib/compute-agent-placement --auth "+
			"token --token-file %d/tokens\n")
	m.write(t, "/etc/systemd/system/"+agentUnit+".d/50-token.conf",
		"[Service]\nLoadCredential=placement-token:/etc/compute-agent/credentials/placement-token\n")
	m.write(t, "/etc/compute-agent/conf.d/50-token.toml",
		"[log]\nlevel = \"debug\"\n[placement_client]\nauth = \"token\"\ntoken_file = \"placement-token\"\n")
	m.run(t, "systemctl", "daemon-reload")
	m.run(t, "systemctl", "restart", placementUnit, agentUnit)
	m.healthy(t, services[0])
	code := func(header ...string) string {
		return m.run(t, append([]string{"curl", "-sS", "-m", "60", "-o", "/dev/null", "-w", "%{http_code}",
			"http://127.0.0.1:8778/resource_providers"}, header...)...)
	}
	if with, without := code("-H", "X-Auth-Token: "+token), code(); with != "200" || without != "401" {
		t.Errorf("Placement answers %s with the token, and %s without", with, without)
	}
	// Services that use other sections of the same files start, and commands of root work.
	m.run(t, "systemctl", "restart", cell0Unit, cell1Unit)
	if out := m.run(t, "compute-agent", "config", "check"); !strings.Contains(out,
		"Not checked: placement_client.token_file names a credential") {
		t.Errorf("config check: %s", out)
	}
	if out := m.run(t, "compute-agent", "status"); strings.Contains(out, "invalid") {
		t.Errorf("status: %s", out)
	}
	m.run(t, "compute-agent", "tree")
	m.keepsSecret(t, token)
	m.remove(t, "/etc/systemd/system/"+placementUnit+".d/50-token.conf")
	m.remove(t, "/etc/systemd/system/"+agentUnit+".d/50-token.conf")
	m.remove(t, "/etc/compute-agent/conf.d/50-token.toml")
	m.run(t, "systemctl", "daemon-reload")
	m.run(t, "systemctl", "restart", placementUnit, agentUnit)
	m.healthy(t, services...)
}

// keepsSecret checks that a secret is not in the journal, nor in the arguments and environments of
// processes.
func (m *machine) keepsSecret(t *testing.T, secret string) {
	t.Helper()
	m.run(t, "journalctl", "--sync")
	for where, command := range map[string]string{
		"the journal":                  "journalctl --boot --no-pager --output=export --all",
		"the arguments of a process":   "cat /proc/[0-9]*/cmdline",
		"the environment of a process": "cat /proc/[0-9]*/environ",
		"a file that all users can read": "find /etc/compute-agent /run/compute-agent* /var/lib/compute-agent* " +
			"-type f -perm -o+r -exec cat {} +",
		"the listing of a unit's settings": "systemctl show 'compute-agent*'",
	} {
		// The pattern does not match itself in the arguments of grep.
		if out := m.sh(t, command+" 2>/dev/null | grep --text -c '["+secret[:1]+"]"+
			secret[1:]+"' || true"); strings.TrimSpace(out) != "0" {
			t.Errorf("a secret is in %s: %s lines", where, strings.TrimSpace(out))
		}
	}
}

// testStop: of services that are stopped nothing is left but their state.
func testStop(t *testing.T, m *machine) {
	m.run(t, "systemctl", "stop", agentUnit, apiUnit, cell0Unit, cell1Unit, socketUnit, placementUnit)
	m.nothingRuns(t)
}

// nothingRuns checks that nothing is left of the services that are stopped.
func (m *machine) nothingRuns(t *testing.T) {
	t.Helper()
	for what, script := range map[string]string{
		"processes": `pgrep --list-full --euid "$(getent passwd | grep -o '^compute-agent[^:]*' | paste ` +
			`-sd ,)" || true`,
		"runtime directories": "ls -d /run/compute-agent* /run/credentials/compute-agent* 2>/dev/null || true",
		"ports":               "ss --listening --numeric --no-header --tcp | grep -E ':(8774|8778|8780)\\b' || true",
		"unix sockets":        "ss --listening --numeric --no-header --unix | grep compute-agent || true",
		"mounts":              "awk '$5 ~ /compute-agent/' /proc/self/mountinfo",
		"control groups":      "find /sys/fs/cgroup -name '*compute*agent*.s*' ! -name '*.slice'",
	} {
		testproc.Equal(t, m.sh(t, script), "", "%s are left:\n%s", what)
	}
}
