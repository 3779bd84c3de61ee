// SPDX-License-Identifier: Apache-2.0

package systemd_test

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// image is the name of an image: images are known by uuids.
const image = "70a599e0-31e7-49b7-b260-868f441e862b"

// manage runs `cells manage` as docs/cells.md says.
const manage = "manage() { runuser -u compute-agent-cells-api -- compute-agent cells manage \"$@\" --config " +
	"/etc/compute-agent/compute-api.toml; }; manage "

// userData is secret: owners of servers put passwords and keys into it.
const userData = "#!/bin/sh -- the user data of the test"

// withGuests is what an agent that creates guests for a cell is configured with.
const withGuests = `
[log]
level = "debug"
[cell_client]
url = "unix:///run/compute-agent-cell-cell1/cell.sock"
[drivers.libvirt.config]
instances_path = "/var/lib/compute-agent-instances"
[drivers.libvirt.config.instances]
images_path = "/var/lib/compute-agent-images"
virt_type = "qemu"
`

// testGuest makes a server with an image, by the compute API, and restarts the agent.
func testGuest(t *testing.T, m *machine) {
	m.write(t, "/etc/compute-agent/conf.d/50-guests.toml", withGuests)
	m.run(t, "usermod", "-aG", "libvirt", "compute-agent")
	m.instancesDropIn(t)
	m.makeServer(t, manage)
	if backing := m.sh(t,
		"qemu-img info --force-share --output=json /var/lib/compute-agent-instances/*/disk"); !strings.Contains(backing,
		"/var/lib/compute-agent-images/"+image) {
		t.Errorf("the disk is no layer over the image: %s", backing)
	}
	before := m.domain(t)
	m.awaitConsole(t)
	for _, text := range []string{userData, base64.StdEncoding.EncodeToString([]byte(userData))} {
		m.keepsSecret(t, text)
	}

	m.run(t, "systemctl", "restart", agentUnit)
	m.healthy(t, services...)
	m.awaitStatus(t, "ACTIVE")
	if after := m.domain(t); after != before {
		t.Errorf("the guest is another process after a restart of the agent: domain %s, then %s", before, after)
	}
	if after := m.allocations(t); after != m.guest.allocations {
		t.Errorf("the allocations changed with a restart of the agent:\n%s\n%s", m.guest.allocations, after)
	}
}

// made waits until the server of an answer is made.
func (m *machine) made(t *testing.T, answer string) {
	t.Helper()
	var made struct{ Server struct{ ID string } }
	testproc.Check(t, json.Unmarshal([]byte(answer), &made))
	m.guest.server = made.Server.ID
	m.awaitStatus(t, "ACTIVE")
}

// bootSector writes a disk whose guest writes "ok" to its serial console.
func (m *machine) bootSector(t *testing.T, path string) {
	t.Helper()
	boot := make([]byte, 512)
	copy(boot, "\xba\xf8\x03\xb0o\xee\xb0k\xee\xf4\xeb\xfd") // "ok" to the serial port
	boot[510], boot[511] = 0x55, 0xaa
	m.write(t, path, string(boot))
	m.run(t, "truncate", "--size=16M", path)
}

// awaitConsole waits for what the guest of a bootSector writes, in a log that belongs to root.
func (m *machine) awaitConsole(t *testing.T) {
	t.Helper()
	eventually(t, "the console's log", func() error {
		if out := m.api(t, "POST", "/servers/"+m.guest.server+"/action",
			`{"os-getConsoleOutput": {}}`); !strings.Contains(out, "ok") {
			return errors.New(out)
		}
		return nil
	})
}

// instancesDropIn lets the agent write to the disks of guests.
func (m *machine) instancesDropIn(t *testing.T) {
	t.Helper()
	m.run(t, "install", "-D", "-m", "644", "-t", "/etc/systemd/system/compute-agent.service.d",
		"/usr/share/compute-agent/instances.conf")
	m.run(t, "systemctl", "daemon-reload")
	m.run(t, "systemctl", "restart", agentUnit)
}

// makeServer makes the cells, an image and the server. The first words of manage run
// `cells manage`.
func (m *machine) makeServer(t *testing.T, manage string) {
	t.Helper()
	m.bootSector(t, "/root/boot")
	m.sh(t, "qemu-img convert -O qcow2 /root/boot /var/lib/compute-agent-images/"+image)
	for _, cell := range []string{"--cell0 --url unix:///run/compute-agent-cell-cell0/cell.sock",
		"--name cell1 --url unix:///run/compute-agent-cell-cell1/cell.sock"} {
		m.sh(t, manage+"create "+cell)
	}
	eventually(t, "the host to be in its cell", func() error {
		_, _ = m.try("sh", "-c", manage+"discover-hosts")
		if out, err := m.try("sh", "-c", manage+"list-hosts"); err != nil || !strings.Contains(out, "cell1") {
			return fmt.Errorf("%s %w", out, err)
		}
		return nil
	})
	m.api(t, "POST", "/flavors", `{"flavor": {"id": "1", "name": "tiny", "vcpus": 1, "ram": 64, "disk": 1}}`)
	m.made(t, m.api(t, "POST", "/servers", `{"server": {"name": "one", "flavorRef": "1", "imageRef": "`+image+
		`", "networks": "none", "user_data": "`+
		base64.StdEncoding.EncodeToString([]byte(userData))+`"}}`))
	m.guest.allocations = m.allocations(t)
	testproc.Contains(t, m.guest.allocations, "VCPU", "Placement has no allocations of the server: %s")
}

// testReboot: all services come back with the machine. Its servers are off, as with Nova, and keep
// what they have.
func testReboot(t *testing.T, m *machine) {
	m.reboot(t)
	m.api(t, "DELETE", "/servers/"+m.guest.server, "")
	eventually(t, "the server to be deleted", func() error {
		entries, err := os.ReadDir(filepath.Join(m.root, "var/lib/compute-agent-instances"))
		if err != nil || len(entries) > 0 {
			return fmt.Errorf("%d directories of instances: %w", len(entries), err)
		}
		if left := m.allocations(t); strings.Contains(left, "VCPU") {
			return fmt.Errorf("allocations are left: %s", left)
		}
		return nil
	})
}

// reboot reboots the machine and checks what came back.
func (m *machine) reboot(t *testing.T) {
	t.Helper()
	m.halt(t, "reboot")
	m.boot(t)
	m.healthy(t, services...)
	m.awaitStatus(t, "SHUTOFF")
	if after := m.allocations(t); after != m.guest.allocations {
		t.Errorf("the allocations changed with a reboot of the host:\n%s\n%s", m.guest.allocations, after)
	}
	if out := m.run(t, "virsh", "--connect=qemu:///system",
		"list", "--all", "--name"); !strings.Contains(out, m.guest.server) {
		t.Errorf("libvirt does not have the guest any more: %s", out)
	}
	m.ownership(t, "after a reboot")
}

// compute asks the compute API.
func (m *machine) compute(method, path, body string) (string, error) {
	args := []string{"curl", "-sS", "--fail-with-body", "-m", "30", "-X", method, "-H", "X-Auth-Token: admin", "-H",
		"OpenStack-API-Version: compute 2.69",
		"-H", "Content-Type: application/json", "http://127.0.0.1:8774/v2.1" + path}
	if body != "" {
		args = append(args, "-d", body)
	}
	return m.try(args...)
}

// api is compute for what must succeed.
func (m *machine) api(t *testing.T, method, path, body string) string {
	t.Helper()
	out, err := m.compute(method, path, body)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", method, path, err, out)
	}
	return out
}

// awaitStatus waits for a status of the server.
func (m *machine) awaitStatus(t *testing.T, status string) {
	t.Helper()
	eventually(t, "the server to be "+status, func() error {
		out := m.api(t, "GET", "/servers/"+m.guest.server, "")
		if strings.Contains(out, `"status":"ERROR"`) {
			t.Fatalf("the server is in error: %s", out)
		}
		if !strings.Contains(out, `"status":"`+status+`"`) {
			return fmt.Errorf("it is %s", out)
		}
		return nil
	})
}

// allocations are those of the server in Placement, with the generations of providers left out:
// passes of the agent change them.
func (m *machine) allocations(t *testing.T) string {
	t.Helper()
	var answer struct {
		Allocations map[string]struct{ Resources map[string]int }
	}
	out := m.run(t, "curl", "-sSf", "-m", "60", "-H", "X-Auth-Token: admin", "-H",
		"OpenStack-API-Version: placement 1.39", "http://127.0.0.1:8778/allocations/"+m.guest.server)
	must(t, json.Unmarshal([]byte(out), &answer))
	clean := testproc.Try(json.Marshal(answer)).Or(t)
	return string(clean)
}

// domain is libvirt's number of the guest, which is new with each start of it.
func (m *machine) domain(t *testing.T) string {
	t.Helper()
	return strings.TrimSpace(m.run(t, "virsh", "--connect=qemu:///system", "domid", m.guest.server))
}
