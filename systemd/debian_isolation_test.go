// SPDX-License-Identifier: Apache-2.0

package systemd_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// isolated is a service as testIsolation knows it: what it has, that others must not reach.
type isolated struct {
	unit, user string
	state      string // its state directory, and a file in it
	runtime    string // its runtime directory, where the probe writes
	admin      string // its admin socket
}

var isolatedServices = []isolated{
	{agentUnit, "compute-agent", "/var/lib/compute-agent/compute_id", "/run/compute-agent",
		"/run/compute-agent/agent.sock"},
	{placementUnit, "compute-agent-placement", "/var/lib/compute-agent-placement/placement.db",
		"/run/compute-agent-placement", "/run/compute-agent-placement/placement-admin.sock"},
	{apiUnit, "compute-agent-cells-api", "/var/lib/compute-agent-cells-api/compute_api.db",
		"/run/compute-agent-cells-api", "/run/compute-agent-cells-api/compute-api.sock"},
	{cell1Unit, "compute-agent-cell", "/var/lib/compute-agent-cell-cell1/cell.db", "/run/compute-agent-cell-cell1",
		"/run/compute-agent-cell-cell1/cell-cell1.sock"},
}

// testIsolation: a process in the sandbox of each service (ExecStartPre= of its own unit: the same
// user, groups, view of the files, system calls and credentials) tries to read the state, the
// runtime directories, the credentials and the memory of the others, and to connect to their
// sockets. Each attempt on another service fails, and each on its own succeeds.
func testIsolation(t *testing.T, m *machine) {
	const credentials = "/etc/compute-agent/credentials/"
	for _, s := range isolatedServices {
		secret := credentials + s.user
		m.write(t, secret, "the secret of "+s.user)
		m.run(t, "chmod", "600", secret)
		m.write(t, "/etc/systemd/system/"+s.unit+".d/60-isolation.conf",
			"[Service]\nLoadCredential=secret:"+secret+"\n")
	}
	m.run(t, "systemctl", "daemon-reload")
	m.run(t, "systemctl", "restart", placementUnit, cell1Unit, apiUnit, agentUnit)
	m.healthy(t, services...)

	// Each attempt is a script that succeeds if the service can do it.
	attempts, allowed := map[string]string{}, map[string][]string{}
	may := func(name, script string, users ...string) {
		attempts[name], allowed[name] = script, users
	}
	for _, s := range isolatedServices {
		may("read the state of "+s.user, "head -c 1 "+s.state, s.user)
		may("list the state of "+s.user, "ls "+filepath.Dir(s.state), s.user)
		may("write to the state of "+s.user, "touch "+
			filepath.Dir(s.state)+"/probe && rm "+filepath.Dir(s.state)+"/probe", s.user)
		may("list the runtime directory of "+s.user, "ls "+s.runtime, s.user)
		may("write to the runtime directory of "+s.user,
			"touch "+s.runtime+"/probe2 && rm "+s.runtime+"/probe2", s.user)
		may("read the credential of "+s.user, "cat /run/credentials/"+s.unit+"/secret", s.user)
		may("read the source of the credential of "+s.user, "cat "+credentials+s.user)
		if s.unit != placementUnit { // its socket's unit restarts it
			// The service itself is not up yet.
			may("connect to the admin socket of "+s.user, "connects "+s.admin)
		}
		// The process of another service; one's own is not there yet.
		pid := m.property(t, s.unit, "MainPID")
		may("read the environment of "+s.user, "head -c 1 /proc/"+pid+"/environ")
		may("read the memory map of "+s.user, "head -c 1 /proc/"+pid+"/maps")
		may("signal "+s.user, "kill -0 "+pid)
	}
	may("list the credentials", "ls "+credentials)
	may("change the configuration", "touch /etc/compute-agent/conf.d/probe.toml")
	may("read the configuration", "cat /etc/compute-agent/compute-agent.toml && cat /etc/compute-agent/cell1.toml",
		"compute-agent", "compute-agent-placement", "compute-agent-cells-api", "compute-agent-cell")
	may("put a driver where the agent runs it", "touch /usr/libexec/compute-agent/plugins/compute-driver-probe")
	// The socket of a cell is open to all; each call is for one of the services.
	cell := "curl -sS -f -m 60 --unix-socket /run/compute-agent-cell-cell0/cell.sock http://cell/v1/"
	may("ask a cell as the compute API", cell+"services", "compute-agent-cells-api")
	may("ask a cell as the agent", cell+"cell", "compute-agent", "compute-agent-cells-api")
	may("write to libvirt", "virsh --connect qemu:///system domcapabilities")
	// With the membership in the group, the agent can write: see testGuest.
	may("read from libvirt", "virsh --readonly --connect qemu:///system list", "compute-agent",
		"compute-agent-placement", "compute-agent-cells-api", "compute-agent-cell")

	var script strings.Builder
	script.WriteString("connects() { curl -sS -m 5 -o /dev/null --unix-socket \"$1\" http://x/; [ $? != 7 ]; }\n" +
		": >\"$1\"\n")
	for name, attempt := range attempts {
		fmt.Fprintf(&script, "if ( %s ) >/dev/null 2>&1; then echo '%s'; fi >>\"$1\"\n", attempt, name)
	}
	script.WriteString("exit 0\n")
	const probe = "/etc/compute-agent-probe"
	m.write(t, probe, script.String())
	for _, s := range isolatedServices {
		t.Run(s.user, func(t *testing.T) {
			dropIn := "/etc/systemd/system/" + s.unit + ".d/70-probe.conf"
			result := s.runtime + "/probe"
			m.write(t, dropIn, "[Service]\nExecStartPre=/bin/sh "+probe+" "+result+"\n")
			m.run(t, "systemctl", "daemon-reload")
			m.run(t, "systemctl", "restart", s.unit)
			done := strings.Split(strings.TrimSpace(m.run(t, "cat", result)), "\n")
			for name, users := range allowed {
				if got, want := slices.Contains(done, name), slices.Contains(users, s.user); got != want {
					t.Errorf("%s can %s: %v, want %v", s.user, name, got, want)
				}
			}
			m.remove(t, dropIn)
		})
	}
	for _, s := range isolatedServices {
		m.remove(t, "/etc/systemd/system/"+s.unit+".d/60-isolation.conf")
	}
	m.remove(t, probe)
	m.run(t, "systemctl", "daemon-reload")
	m.run(t, "systemctl", "restart", placementUnit, cell1Unit, apiUnit, agentUnit)
	m.healthy(t, services...)
}

// testDriverIsolation: the process of a driver, which has the agent's user, tries to read the
// agent's secrets: it succeeds without its sandbox only.
func testDriverIsolation(t *testing.T, m *machine) {
	const (
		plugin, file = "/usr/libexec/compute-agent/plugins/compute-driver-probe",
			"/etc/compute-agent/conf.d/50-probe.toml"
		dropIn = "/etc/systemd/system/" + agentUnit + ".d/60-isolation.conf"
		own    = "/var/lib/compute-agent/drivers/probe"
		result = own + "/result"
	)
	m.write(t, "/etc/compute-agent/credentials/agent", "the secret of the agent")
	m.write(t, dropIn, "[Service]\nLoadCredential=secret:/etc/compute-agent/credentials/agent\n")
	attempts := map[string]struct {
		script string
		sealed bool // refused in the sandbox
	}{
		"read the system":                   {"cat /etc/os-release /proc/meminfo && ls /usr/lib /sys/devices", false},
		"read accounts":                     {"cat /etc/passwd", false},
		"write to its own state":            {"touch " + own + "/new", false},
		"write to a temporary file":         {"echo x >/tmp/probe && cat /tmp/probe", false},
		"read the identity of the host":     {"cat /var/lib/compute-agent/compute_id", true},
		"list directories":                  {"ls / /etc /var/lib/compute-agent", false},
		"write to the state of the agent":   {"echo x >>/var/lib/compute-agent/probe", true},
		"read a credential of the agent":    {"cat /run/credentials/compute-agent.service/secret", true},
		"read the configuration":            {"cat /etc/compute-agent/compute-agent.toml", true},
		"read the environment of the agent": {"cat /proc/$PPID/environ", true},
		"read the memory map of the agent":  {"cat /proc/$PPID/maps", true},
		"open the memory of the agent":      {"exec 3</proc/$PPID/mem", true},
		"follow a descriptor of the agent":  {"readlink /proc/$PPID/fd/0", true},
		"change the mode of the state":      {"chmod 750 /var/lib/compute-agent", true},
		"signal the agent":                  {"kill -0 $PPID", true},
	}
	var script strings.Builder
	script.WriteString("#!/bin/sh\n: >" + result + ".new\n")
	for name, a := range attempts {
		fmt.Fprintf(&script, "if ( %s ) >/dev/null 2>&1; then echo '%s'; fi >>%s.new\n", a.script, name, result)
	}
	fmt.Fprintf(&script, "mv %s.new %s\nexit 1\n", result, result)
	m.write(t, plugin, script.String())
	m.run(t, "chmod", "755", plugin)
	m.run(t, "systemctl", "daemon-reload")
	for _, sandbox := range []string{"landlock", "none"} {
		t.Run(sandbox, func(t *testing.T) {
			m.write(t, file, "[drivers.probe]\nsandbox = \""+sandbox+"\"\n")
			m.run(t, "rm", "-f", result)
			_, _ = m.try("systemctl", "restart", agentUnit) // it starts with a driver that does not work, too
			var done string
			eventually(t, "the driver's results", func() (err error) {
				done, err = m.try("cat", result)
				return err
			})
			for name, a := range attempts {
				if got, want := slices.Contains(strings.Split(done, "\n"), name),
					sandbox == "none" || !a.sealed; got != want {
					t.Errorf("a driver can %s: %v, want %v", name, got, want)
				}
			}
			if out := m.sh(t,
				"tr '\\0' '\\n' </proc/$(systemctl show --value -p MainPID compute-agent)/environ | "+
					"grep CREDENTIALS"); out == "" {
				t.Error("the agent has no credentials: nothing was tried")
			}
		})
	}
	m.remove(t, file)
	m.remove(t, plugin)
	m.remove(t, dropIn)
	m.run(t, "rm", "-f", "/var/lib/compute-agent/probe")
	m.run(t, "systemctl", "daemon-reload")
	m.run(t, "systemctl", "restart", agentUnit)
	m.healthy(t, services[0])
	if out := m.sh(t, "compute-agent status --output json"); !strings.Contains(out, `, seccomp"`) {
		t.Errorf("the status does not show the sandbox:\n%s", out)
	}
}
