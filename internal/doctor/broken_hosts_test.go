// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/internal/agent/commands"
	"github.com/compute-agent/compute-agent/internal/health"
	"github.com/compute-agent/compute-agent/systemd"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// digestOfPlugin is the sha256 of the plugin of a healthy host.
var digestOfPlugin = func() string {
	sum := sha256.Sum256([]byte("#!/bin/true\n"))
	return hex.EncodeToString(sum[:])
}()

// withInstances configures an agent that creates guests.
const withInstances = "[drivers.libvirt.config.instances]\n"

// TestBrokenHosts: every row breaks a healthy host in one way, and the one check that is about it
// says so. An empty fix is for what is fine or skipped.
func TestBrokenHosts(t *testing.T) {
	for name, tc := range map[string]struct {
		breakIt  func(*fixture)
		check    string
		severity Severity
		found    string // Part of what is found; URL stands for Placement's address.
		fix      string
	}{
		"configuration with a slip": {func(f *fixture) { f.config("[agent]\nhost = 5\nhots = 6\n[drivers.libvirt]\n") },
			"config", Error,
			configFile + ":2: agent.host: the integer 5 does not fit here (and 1 more)",
			"compute-agent config check --config " + configFile},
		"configuration that everybody can change": {func(f *fixture) { f.chmod(configFile, 0o646) }, "config", Error,
			"all users can change it", "chmod o-w " + configFile},
		"configuration that the agent cannot read": {func(f *fixture) { f.chmod(configFile, 0o600) }, "config", Error,
			"cannot be read by compute-agent",
			"chgrp compute-agent " + configFile + " && chmod g+r " + configFile},
		"no driver": {func(f *fixture) { f.config("") }, "drivers", Warning, "no driver is enabled",
			`sh -c 'mkdir -p /etc/compute-agent/conf.d && printf "[drivers.libvirt]\n" > ` +
				`/etc/compute-agent/conf.d/libvirt.toml'`},

		"no state directory": {func(f *fixture) { f.remove(stateDir) }, "state-dir", Error,
			"does not exist, and compute-agent cannot create it in /var/lib",
			"install -d -o compute-agent -g compute-agent -m 0750 " + stateDir},
		"no state directory, but root asks for itself": {func(f *fixture) {
			f.remove(stateDir)
			f.env.Agent =
				Account{Name: "root"}
		}, "state-dir", OK, "the agent creates it", ""},
		"state directory of another user": {func(f *fixture) { f.owners[stateDir] = 1000 },
			"state-dir", Error, "belongs to user 1000",
			"chown -R compute-agent:compute-agent " + stateDir},
		"state directory open to all": {func(f *fixture) { f.chmod(stateDir, 0o777) },
			"state-dir", Error, "has mode 0777", "chmod 0750 " + stateDir},
		"state directory read-only": {func(f *fixture) { f.chmod(stateDir, 0o550) },
			"state-dir", Error, "mode 0550", "chmod u+rwx " + stateDir},
		"state directory is a file": {func(f *fixture) {
			f.remove(stateDir)
			f.write(stateDir,
				"", 0o600)
		}, "state-dir", Error, "not a directory", "mv /var/lib/compute-agent /var/lib/compute-agent.away"},
		"state directory behind a closed one": {func(f *fixture) { f.chmod("/var/lib", 0o700) },
			"state-dir", Error, "cannot enter /var/lib", "chmod o+x /var/lib"},
		"state directory that the asker may not see": {func(f *fixture) { f.denied[stateDir] = true },
			"state-dir", Skipped, "run this command as compute-agent or root", ""},
		"no runtime directory, as before the first start": {func(f *fixture) {
			f.remove(runtimeDir)
			f.keepClosed =
				true
		}, "runtime-dir", Skipped, "systemd creates it", ""},
		"runtime directory of another user": {func(f *fixture) { f.owners[runtimeDir] = 1000; f.env.Self = 1000 },
			"runtime-dir", Error, "belongs to user 1000",
			"sudo chown -R compute-agent:compute-agent " + runtimeDir},

		"full disk": {func(f *fixture) { f.space.BytesFree = 1 << 20 }, "disk", Error,
			"1.0 MiB free of 20.0 GiB below " + stateDir, "du -xh -d1 /var/lib/compute-agent | sort -h | tail"},
		"nearly full disk": {func(f *fixture) { f.space.BytesFree = 100 << 20 }, "disk", Warning, "100.0 MiB free",
			"du -xh -d1 /var/lib/compute-agent | sort -h | tail"},
		"no inodes": {func(f *fixture) { f.space.InodesFree = 3 }, "disk", Error, "3 of 2000000 inodes",
			"du --inodes -x -d1 /var/lib/compute-agent | sort -n | tail"},
		"few inodes": {func(f *fixture) { f.space.InodesFree = 300 }, "disk", Warning,
			"300 of 2000000 inodes", "du --inodes -x -d1 /var/lib/compute-agent | sort -n | tail"},
		"inodes made as needed": {func(f *fixture) { f.space.InodesFree, f.space.InodesTotal = 0, 0 },
			"disk", OK, "10.0 GiB free", ""},
		"read-only disk": {func(f *fixture) { f.space.ReadOnly = true }, "disk", Error, "mounted read-only",
			`mount -o remount,rw "$(findmnt -n -o TARGET -T /var/lib/compute-agent)"`},

		"no identity yet": {func(f *fixture) { f.remove(stateDir + "/compute_id") }, "compute-id", OK, "none yet", ""},
		"identity of nonsense": {func(f *fixture) { f.write(stateDir+"/compute_id", "node-1\n", 0o644) },
			"compute-id", Error, "does not contain exactly one uuid",
			"openstack resource provider list --name node-1 -f value -c uuid > /var/lib/compute-agent/compute_id"},
		"two identities": {func(f *fixture) {
			f.write("/etc/compute-agent/compute_id", "00000000-0000-0000-0000-000000000001\n", 0o644)
		}, "compute-id", Error, "two identities",
			"openstack resource provider list --name node-1 -f value -c uuid   # then remove the file with " +
				"the other uuid"},
		"the host was renamed": {func(f *fixture) {
			f.write(stateDir+"/identity.json", `{"version": 1, "uuid": "`+hostUUID+
				`", "host": "node-0", "created": "2026-01-01T00:00:00Z"}`, 0o600)
		}, "compute-id", Error, "was written on host node-0, and this is node-1",
			"if the host was renamed, `compute-agent adopt --rename`, or restore its old name (agent.host = " +
				"\"node-0\"); if this state directory is a copy of " +
				"another host's, empty /var/lib/compute-agent (and remove a copied compute_id beside the " +
				"configuration)"},
		"the identity was lost": {func(f *fixture) {
			f.remove(stateDir + "/compute_id")
			f.write(stateDir+"/identity.json", `{"version": 1, "uuid": "`+hostUUID+
				`", "host": "node-1", "created": "2026-01-01T00:00:00Z"}`, 0o600)
		}, "compute-id", Error, "there is no compute_id, and /var/lib/compute-agent/identity.json says that it was",
			"restore it: `compute-agent adopt --uuid " +
				hostUUID + "`; if this is a new host to Placement, empty /var/lib/compute-agent first"},
		"two copies of one identity": {func(f *fixture) {
			f.write("/etc/compute-agent/compute_id",
				strings.ToUpper(hostUUID), 0o644)
		}, "compute-id", OK, hostUUID, ""},

		"no plugin directory": {func(f *fixture) { f.remove(pluginDir) }, "plugin-dir", Error,
			"does not exist", "install -d -o root -g root -m 0755 " + pluginDir},
		"plugin directory open": {func(f *fixture) { f.chmod(pluginDir, 0o775) }, "plugin-dir", Error,
			"has mode 0775", "chmod go-w " + pluginDir},
		"plugin directory below an open one": {func(f *fixture) { f.chmod("/usr/libexec", 0o777) },
			"plugin-dir", Error, "/usr/libexec has mode 0777", "chmod go-w /usr/libexec"},
		"plugin directory below a sticky one": {func(f *fixture) { f.chmod("/usr/libexec", 0o777|os.ModeSticky) },
			"plugin-dir", OK, pluginDir, ""},
		"plugin in a sticky directory": {func(f *fixture) { f.chmod(pluginDir, 0o777|os.ModeSticky) },
			"plugin.libvirt", Error, "has mode 0777", "chmod go-w " + pluginDir},
		"plugin directory of another user": {func(f *fixture) { f.owners[pluginDir] = 1000 }, "plugin-dir", Error,
			"belongs to user 1000", "chown root:root " + pluginDir},
		"plugin elsewhere": {func(f *fixture) {
			f.write("/opt/driver", "", 0o755)
			f.remove(pluginDir)
			f.config("[drivers.libvirt]\npath = \"/opt/driver\"\n")
		}, "plugin-dir", Skipped, "no enabled driver", ""},
		"no plugin": {func(f *fixture) { f.remove(pluginFile) }, "plugin.libvirt", Error,
			"there is no compute-driver-libvirt in " + pluginDir + " or /opt/agent/bin",
			"install -D -o root -g root -m 0755 compute-driver-libvirt " + pluginFile},
		"no plugin in the directory that is set": {func(f *fixture) {
			f.remove(pluginFile)
			f.write("/opt/agent/bin/compute-driver-libvirt", "#!/bin/sh\n", 0o755)
			f.config("[plugins]\ndir = \"" + pluginDir + "\"\n[drivers.libvirt]\n")
		}, "plugin.libvirt", Error, pluginFile + " does not exist",
			"install -D -o root -g root -m 0755 compute-driver-libvirt " + pluginFile},
		"plugin beside the agent": {func(f *fixture) {
			f.remove(pluginFile)
			f.write("/opt/agent/bin/compute-driver-libvirt", "#!/bin/sh\n", 0o755)
		}, "plugin.libvirt", OK, "/opt/agent/bin/compute-driver-libvirt", ""},
		"plugin beside the agent that others change": {func(f *fixture) {
			f.remove(pluginFile)
			f.write("/opt/agent/bin/compute-driver-libvirt", "#!/bin/sh\n", 0o755)
			f.chmod("/opt/agent/bin", 0o775)
		}, "plugin.libvirt", Error, "/opt/agent/bin has mode 0775", "chmod go-w /opt/agent/bin"},
		"plugin not executable": {func(f *fixture) { f.chmod(pluginFile, 0o644) }, "plugin.libvirt", Error,
			"has mode 0644", "chmod 0755 " + pluginFile},
		"plugin for root only": {func(f *fixture) { f.chmod(pluginFile, 0o700) }, "plugin.libvirt", Error,
			"has mode 0700", "chmod 0755 " + pluginFile},
		"plugin that others change": {func(f *fixture) { f.chmod(pluginFile, 0o757) }, "plugin.libvirt", Error,
			"other users than its owner can change it", "chmod go-w " + pluginFile},
		"plugin of another user": {func(f *fixture) { f.owners[pluginFile] = 1000 }, "plugin.libvirt", Error,
			"belongs to user 1000", "chown root:root " + pluginFile},
		"plugin of the agent": {func(f *fixture) { f.owners[pluginFile] = agentUID },
			"plugin.libvirt", OK, pluginFile, ""},
		"plugin set-user-ID": {func(f *fixture) { f.chmod(pluginFile, 0o755|os.ModeSetuid) },
			"plugin.libvirt", Error, "set-user-ID", "chmod ug-s " + pluginFile},
		"plugin is a directory": {func(f *fixture) { f.remove(pluginFile); f.mkdir(pluginFile, 0o755) },
			"plugin.libvirt", Error, "not a regular file",
			"install -o root -g root -m 0755 compute-driver-libvirt " + pluginFile},
		"plugin with its sum": {func(f *fixture) {
			f.config("[drivers.libvirt]\nsha256 = \"" +
				digestOfPlugin + "\"\n")
		}, "plugin.libvirt", OK, "sha256 as configured", ""},
		"plugin that was changed": {func(f *fixture) {
			f.config("[drivers.libvirt]\nsha256 = \"" +
				strings.Repeat("0", 64) + "\"\n")
		}, "plugin.libvirt", Error,
			"has sha256 " + digestOfPlugin, "sha256sum " + pluginFile},
		"no plugins at all": {func(f *fixture) { f.config("") }, "plugin", Skipped, "no driver is enabled", ""},

		"libvirt not writable for an agent that creates guests": {func(f *fixture) {
			f.config(withInstances)
			f.env.Agent = Account{Name: "compute-agent", UID: agentUID, GIDs: []int{agentGID}}
		}, "libvirt", Error, "the service is not in the group libvirt",
			"usermod -aG libvirt compute-agent && " + installDropIn},
		"libvirt not writable for an agent that creates guests, asked by another": {func(f *fixture) {
			f.config(withInstances)
			f.env.Self, f.env.Agent = 1000, Account{Name: "cloud", UID: agentUID, GIDs: []int{agentGID}}
		}, "libvirt", Error, "the user is not in the group libvirt", "sudo usermod -aG libvirt cloud"},
		"no group libvirt": {func(f *fixture) {
			f.config(withInstances)
			f.env.Agent = Account{Name: "compute-agent", UID: agentUID, GIDs: []int{agentGID}}
			f.env.LookupGroup = func(string) (int, error) { return 0, errors.New("unknown group") }
		}, "libvirt", Error, "there is no group libvirt",
			"groupadd --system libvirt && systemctl restart libvirtd.socket"},
		"libvirt writable for an agent that creates guests": {func(f *fixture) {
			f.config(withInstances)
			f.write("/etc/systemd/system/compute-agent.service.d/instances.conf",
				string(testproc.Try(fs.ReadFile(systemd.Units, "units/instances.conf")).Or(f.t)), 0o644)
		}, "libvirt", OK, "a daemon listens on /run/libvirt/libvirt-sock", ""},
		"the drop-in of a release that could not read console logs": {func(f *fixture) {
			f.config(withInstances)
			f.write("/etc/systemd/system/compute-agent.service.d/instances.conf",
				"[Service]\nReadWritePaths=-/var/lib/compute-agent-instances\n", 0o644)
		}, "libvirt", Warning, "no drop-in of compute-agent.service has CAP_DAC_READ_SEARCH", installDropIn},
		"libvirt's read-only socket closed": {func(f *fixture) { f.chmod("/run/libvirt/libvirt-sock-ro", 0o700) },
			"libvirt", Error, "the read-only socket is closed",
			"chmod o+rwx /run/libvirt/libvirt-sock-ro   # for good: unix_sock_ro_perms in libvirtd.conf " +
				"(virtqemud.conf), or SocketMode= of its unit"},
		"libvirt without write access for an agent that reports": {func(f *fixture) {
			f.chmod(
				"/run/libvirt/libvirt-sock", 0o700)
		}, "libvirt", OK, "libvirt-sock-ro", ""},
		"an agent that reports": {func(*fixture) {}, "libvirt-group", OK, "no write access to libvirt", ""},
		"an agent that creates guests": {func(f *fixture) { f.config(withInstances) },
			"libvirt-group", Skipped, "needs write access", ""},
		"an agent that reports, in the group libvirt since an older version": {func(f *fixture) {
			f.env.Agent = Account{Name: "compute-agent", UID: agentUID, GIDs: []int{agentGID, libvirtGID}}
		}, "libvirt-group", Warning, "is in the group libvirt",
			"gpasswd --delete compute-agent libvirt && systemctl restart compute-agent"},
		"libvirt's directory closed": {func(f *fixture) { f.chmod("/run/libvirt", 0o700) }, "libvirt", Error,
			"cannot enter /run/libvirt", "chmod o+x /run/libvirt"},
		"libvirt's daemon died": {func(f *fixture) { f.abandon("/run/libvirt/libvirt-sock-ro", 0o777) },
			"libvirt", Error, "no process listens on it", "systemctl restart libvirtd-ro.socket"},
		"libvirt stopped": {func(f *fixture) { f.remove("/run/libvirt") }, "libvirt", Error,
			"its daemon does not run", "systemctl start libvirtd"},
		"libvirt stopped in a container": {func(f *fixture) { f.remove("/run/libvirt"); f.remove("/run/systemd") },
			"libvirt", Error, "its daemon does not run", "libvirtd --daemon"},
		"modular libvirt stopped": {func(f *fixture) { f.remove("/run/libvirt"); f.programs = []string{"virtqemud"} },
			"libvirt", Error, "its daemon does not run", "systemctl start virtqemud"},
		"modular libvirt runs": {func(f *fixture) {
			f.remove("/run/libvirt/libvirt-sock")
			f.remove("/run/libvirt/libvirt-sock-ro")
			f.listen("/run/libvirt/virtqemud-sock-ro", 0o777)
			f.listen("/run/libvirt/virtnodedevd-sock-ro", 0o777)
		}, "libvirt", OK, "virtqemud-sock-ro", ""},
		"modular libvirt without the daemon of node devices": {func(f *fixture) {
			f.listen("/run/libvirt/virtqemud-sock-ro", 0o777)
		}, "libvirt", Error, "virtnodedevd does not: no process listens on /run/libvirt/virtnodedevd-sock-ro",
			"systemctl enable --now virtnodedevd.socket virtnodedevd-ro.socket"},
		"modular libvirt whose daemon of node devices died": {func(f *fixture) {
			f.config(withInstances)
			f.listen("/run/libvirt/virtqemud-sock", 0o777)
			f.abandon("/run/libvirt/virtnodedevd-sock", 0o777)
		}, "libvirt", Error, "no process listens on /run/libvirt/virtnodedevd-sock",
			"systemctl enable --now virtnodedevd.socket virtnodedevd-ro.socket"},
		"modular libvirt not writable": {func(f *fixture) {
			f.config(withInstances)
			f.listen("/run/libvirt/virtqemud-sock", 0o700)
			f.env.Agent = Account{Name: "compute-agent", UID: agentUID, GIDs: []int{agentGID, libvirtGID}}
		}, "libvirt", Error, "virtqemud-sock (mode 0700", "systemctl restart virtqemud.socket"},
		"no libvirt": {func(f *fixture) { f.remove("/run/libvirt"); f.programs = nil }, "libvirt", Error,
			"not installed", "apt-get install libvirt-daemon-system"},
		"libvirt of another host": {func(f *fixture) {
			f.config("[drivers.libvirt.config]\nuri = \"test:///default\"\n")
			f.remove("/run/libvirt")
		}, "libvirt", Skipped, "test:///default", ""},

		"libvirt at a socket of its own": {func(f *fixture) {
			f.config("[drivers.libvirt.config]\nuri = \"qemu+unix:///system?socket=/run/mine/libvirt-sock\"\n")
			f.remove("/run/libvirt")
			f.mkdir("/run/mine", 0o755)
			f.listen("/run/mine/libvirt-sock", 0o777)
		}, "libvirt", OK, "a daemon listens on /run/mine/libvirt-sock", ""},
		"no libvirt at a socket of its own": {func(f *fixture) {
			f.config("[drivers.libvirt.config]\nuri = \"qemu:///system?socket=/run/mine/libvirt-sock\"\n")
		}, "libvirt", Error, "no daemon listens on /run/mine/libvirt-sock, which uri names",
			"ls -l /run/mine/libvirt-sock   # start the daemon that listens there, or correct uri in " +
				"[drivers.libvirt.config]"},
		"libvirt over ssh": {func(f *fixture) {
			f.config("[drivers.libvirt.config]\nuri = \"qemu+ssh://root@cn2/system?socket=/run/mine/libvirt-sock\"\n")
		}, "libvirt", Skipped, "qemu+ssh://root@cn2/system", ""},
		"legacy libvirt only": {func(f *fixture) {
			f.config("[drivers.libvirt.config]\nuri = \"qemu:///system?mode=direct\"\n")
			f.programs = []string{"virtqemud"}
		}, "libvirt", Error, "its daemon does not run", "systemctl start virtqemud"},

		"a driver that warns": {func(f *fixture) {
			f.env.Examine = func(context.Context) ([]commands.DriverCheck, error) {
				return []commands.DriverCheck{{Driver: "libvirt",
						Warnings: []commands.DriverWarning{{Name: "images-path",
							Text: "guests with an image cannot start"}}}},
					nil
			}
		}, "driver.libvirt", Warning, "images-path: guests with an image cannot start", "compute-agent plugin info " +
			pluginFile + "   # lists its configuration keys"},
		"a driver that cannot look": {func(f *fixture) {
			f.env.Examine = func(context.Context) ([]commands.DriverCheck, error) {
				return []commands.DriverCheck{{Driver: "libvirt", Unchecked: "libvirt is down"}}, nil
			}
		}, "driver.libvirt", Skipped, "libvirt is down", ""},

		"the agent that runs": {func(f *fixture) {
			f.env.AgentDescription =
				"the configuration of the running agent (process 7)"
		}, "config", OK, "; this is the configuration of the running agent (process 7)", ""},

		"kvm not loaded": {func(f *fixture) { f.remove("/dev/kvm") }, "kvm", Warning,
			"kvm_intel is not loaded", "modprobe kvm_intel"},
		"kvm not loaded on AMD": {func(f *fixture) {
			f.remove("/dev/kvm")
			f.write("/proc/cpuinfo",
				"flags : svm\n", 0o444)
		}, "kvm", Warning, "kvm_amd is not loaded", "modprobe kvm_amd"},
		"kvm off in firmware": {func(f *fixture) { f.remove("/dev/kvm"); f.remove("/proc/cpuinfo") },
			"kvm", Warning, "no /dev/kvm", "lscpu | grep -i virtuali"},
		"kvm hidden from the service": {func(f *fixture) {
			f.remove("/dev/kvm")
			f.mkdir(
				"/sys/module/kvm_intel", 0o755)
		}, "kvm", OK, "/sys/module/kvm_intel", ""},
		"kvm not needed": {func(f *fixture) { f.config(""); f.remove("/dev/kvm") }, "kvm", Skipped, "not enabled", ""},

		"CPUs that it cannot write": {func(f *fixture) { f.powerManaged(0o644) }, "cpu-power", Error,
			"compute-agent cannot write 1 of 2 files such as /sys/devices/system/cpu/cpu3/online",
			"install -D -m 644 /usr/share/compute-agent/cpu-power-tmpfiles.conf " +
				"/etc/tmpfiles.d/compute-agent-cpu-power.conf && systemd-tmpfiles --create " +
				"compute-agent-cpu-power.conf"},
		"CPUs that its unit protects": {func(f *fixture) { f.powerManaged(0o664) }, "cpu-power", Error,
			"no drop-in of compute-agent.service",
			"install -D -m 644 /usr/share/compute-agent/cpu-power.conf " +
				"/etc/systemd/system/compute-agent.service.d/cpu-power.conf && systemctl daemon-reload && systemctl " +
				"restart compute-agent"},
		"CPUs that it can write": {func(f *fixture) {
			f.powerManaged(0o664)
			f.write("/etc/systemd/system/compute-agent.service.d/cpu-power.conf",
				"[Service]\nReadWritePaths=/sys/devices/system/cpu\n", 0o644)
		}, "cpu-power", OK, "can write 2 files", ""},
		"CPUs, and another drop-in": {func(f *fixture) {
			f.powerManaged(0o664)
			f.write("/etc/systemd/system/compute-agent.service.d/10.conf",
				"[Service]\nReadWritePaths=/srv/instances\nProtectKernelTunables=yes\n", 0o644)
		}, "cpu-power", Error, "no drop-in",
			"install -D -m 644 /usr/share/compute-agent/cpu-power.conf " +
				"/etc/systemd/system/compute-agent.service.d/cpu-power.conf && systemctl daemon-reload && systemctl " +
				"restart compute-agent"},
		"CPUs without governors": {func(f *fixture) {
			f.powerManaged(0o664)
			f.config("[drivers.libvirt.config]\ncpu_power_management = true\ncpu_power_management_strategy = " +
				"\"governor\"\n[drivers.libvirt.config.instances]\n")
		}, "cpu-power", Error, "this kernel does not switch CPUs like that", "editor " + configFile},

		"Placement too old": {func(f *fixture) { f.placement = placementServer("1.36", 200, 0) },
			"placement", Error, "up to 1.36; the agent needs 1.37", "curl -sS -m 10 -D- URL/"},
		"Placement just new enough": {func(f *fixture) { f.placement = placementServer("1.37", 200, 0) },
			"placement", OK, "up to 1.37", ""},
		"Placement wants a token": {func(f *fixture) { f.placement = placementServer("1.39", 401, 0) },
			"placement", Error, "requires a token (401)", "editor " + configFile},
		"Placement refuses the token": {func(f *fixture) {
			f.placement = placementServer("1.39", 401, 0)
			f.write("/etc/token", "t\n", 0o600)
			f.config("[placement_client]\nauth = \"token\"\ntoken_file = \"/etc/token\"\n[agent]\nhost = \"node-1\"\n")
		}, "placement", Error, "rejects the token",
			"openstack token issue -f value -c id | tee /etc/token > /dev/null"},
		"token that others read": {func(f *fixture) {
			f.write("/etc/token", "t\n", 0o644)
			f.config("[placement_client]\nauth = \"token\"\ntoken_file = \"/etc/token\"\n")
		}, "placement", Error, "has mode 0644", "editor " + configFile},
		"token behind a link of the agent's user": {func(f *fixture) {
			f.write("/etc/token", "t\n", 0o600)
			f.must(os.Symlink("../../../etc/token", f.path(stateDir+"/token")))
			f.config("[placement_client]\nauth = \"token\"\ntoken_file = \"" + stateDir + "/token\"\n")
		}, "placement", Skipped, "root does not follow the symbolic link " + stateDir + "/token", ""},
		"Placement forbids": {func(f *fixture) { f.placement = placementServer("1.39", 403, 0) },
			"placement", Error, "403", "openstack role add --user compute-agent --project service service"},
		"Placement breaks": {func(f *fixture) { f.placement = placementServer("1.39", 500, 0) },
			"placement", Error, "returns 500", "curl -sS -m 10 -D- URL/"},
		"Placement is down behind its proxy": {func(f *fixture) { f.placement = answerWith(503, "") },
			"placement", Error, "answers 503", "curl -sS -m 10 -D- URL/"},
		"not Placement": {func(f *fixture) { f.placement = answerWith(200, "<html>It works!</html>") },
			"placement", Error, "not like Placement", "curl -sS -m 10 -D- URL/"},
		"a cell instead of Placement": {
			func(f *fixture) {
				f.placement = answerWith(404, `{"code": "not_found", "message": "This is a cell of compute-agent."}`)
			}, "placement", Error,
			"there is a cell of compute-agent", "editor " + configFile,
		},
		"not Placement, with a login": {func(f *fixture) { f.placement = answerWith(401, "") }, "placement", Error,
			"not Placement's address", "editor " + configFile},
		"no process listens": {func(f *fixture) {
			f.environ =
				[]string{"COMPUTE_AGENT_PLACEMENT_CLIENT_URL=http://127.0.0.1:1"}
		}, "placement", Error, "no process listens at 127.0.0.1:1", "systemctl start compute-agent-placement.socket"},
		"no process listens in a container": {func(f *fixture) {
			f.remove("/run/systemd")
			f.environ = []string{"COMPUTE_AGENT_PLACEMENT_CLIENT_URL=http://127.0.0.1:1"}
		}, "placement", Error, "no process listens at 127.0.0.1:1",
			"compute-agent placement serve --listen 127.0.0.1:1 --state-dir /var/lib/compute-agent-placement"},
		"certificate of an unknown authority": {func(f *fixture) { f.tls = func(s *httptest.Server) { s.StartTLS() } },
			"placement", Error, "does not trust",
			"openssl s_client -connect HOST -servername 127.0.0.1 -showcerts </dev/null"},
		"certificate for another name": {func(f *fixture) {
			f.tls = func(s *httptest.Server) {
				_ = s.Listener.Close()
				s.Listener = testproc.Try((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.2:0")).Or(t)
				s.StartTLS()
				f.write("/etc/ca.pem", string(
					pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})), 0o644)
			}
			f.environ = []string{"COMPUTE_AGENT_PLACEMENT_CLIENT_CA_FILE=/etc/ca.pem"}
		}, "placement", Error, "for another name",
			"openssl s_client -connect HOST -servername 127.0.0.2 -showcerts </dev/null"},
		"TLS where there is none": {func(f *fixture) {
			f.tls = func(s *httptest.Server) { s.Start(); s.URL = strings.Replace(s.URL, "http://", "https://", 1) }
		}, "placement", Error, "should begin with http://",
			"openssl s_client -connect HOST -servername 127.0.0.1 -showcerts </dev/null"},
		"client certificate wanted": {func(f *fixture) {
			f.tls = func(s *httptest.Server) {
				s.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
				s.StartTLS()
				f.write("/etc/ca.pem", string(
					pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})), 0o644)
			}
			f.environ = []string{"COMPUTE_AGENT_PLACEMENT_CLIENT_CA_FILE=/etc/ca.pem"}
		}, "placement", Error, "client certificate",
			"openssl s_client -connect HOST -servername 127.0.0.1 -showcerts </dev/null"},
		"authorities that are none": {func(f *fixture) {
			f.write("/etc/ca.pem", "hello", 0o644)
			f.environ = []string{"COMPUTE_AGENT_PLACEMENT_CLIENT_CA_FILE=/etc/ca.pem"}
		}, "placement", Error, "has no certificates in PEM", "editor " + configFile},

		"clock ahead": {func(f *fixture) { f.placement = placementServer("1.39", 200, -time.Minute) }, "clock", Warning,
			"ahead of Placement's", "timedatectl set-ntp true"},
		"clock behind": {func(f *fixture) {
			f.placement = placementServer("1.39", 200, time.Minute)
			f.programs = []string{"chronyc"}
		}, "clock", Warning, "behind Placement's", "chronyc makestep"},
		"clock left alone": {func(f *fixture) { f.synced = errUnsynced; f.programs = nil }, "clock", Warning,
			"clock is not synchronised", "apt-get install chrony"},
		"clock of a container": {func(f *fixture) {
			f.synced = errUnsynced
			f.write("/run/systemd/container",
				"systemd-nspawn", 0o644)
		}, "clock", Skipped, "this is a container", ""},
		"clock with chrony stopped": {func(f *fixture) { f.synced = errUnsynced; f.programs = []string{"chronyd"} },
			"clock", Warning, "clock is not synchronised", "systemctl enable --now chrony"},
		"clock unknown": {func(f *fixture) { f.synced = errors.New("not permitted") }, "clock", OK,
			"agrees with Placement's", ""},

		"few open files": {func(f *fixture) { f.hard = 1024 }, "open-files", Warning, "at most 1024",
			`sh -c 'mkdir -p /etc/systemd/system/compute-agent.service.d && printf "[Service]\nLimitNOFILE=65536\n" ` +
				`> /etc/systemd/system/compute-agent.service.d/open-files.conf && systemctl daemon-reload && ` +
				`systemctl restart compute-agent'`},

		"agent stopped": {func(f *fixture) { f.keepClosed = true; f.remove("/proc/4711") }, "agent", Warning,
			"does not run", "systemctl start compute-agent"},
		"agent stopped in a container": {func(f *fixture) {
			f.keepClosed = true
			f.remove("/run/systemd")
		}, "agent", Warning, "does not run", "compute-agent run --config " + configFile},
		"agent crashed": {func(f *fixture) { f.keepClosed = true; f.abandon(runtimeDir+"/agent.sock", 0o600) },
			"agent", Warning, "does not run", "systemctl start compute-agent"},
		"agent confused": {func(f *fixture) { f.keepClosed = true; f.agent(500) }, "agent", Error, "status 500",
			"systemctl restart compute-agent"},
		"agent in trouble": {func(f *fixture) {
			f.keepClosed = true
			f.agent(200,
				health.Condition{Severity: health.Critical})
		}, "agent", Warning, "degraded: the driver is gone",
			"compute-agent status --config " + configFile},
		"agent with something to know": {func(f *fixture) {
			f.keepClosed = true
			f.agent(200,
				health.Condition{Severity: health.Info})
		}, "agent", OK, "runs and answers", ""},
		"two agents": {func(f *fixture) {
			f.process(4712, "compute-agent", stateDir+
				"/agent.lock")
		}, "one-agent", Error, "4711, 4712", "kill 4712"},
		"an agent elsewhere": {func(f *fixture) { f.keepClosed = true }, "one-agent", Error,
			"process 4711 uses", "kill 4711 && systemctl restart compute-agent"},
		"an agent with an older configuration": {func(f *fixture) { f.remove("/proc/4711") }, "one-agent", Warning,
			"has changed since it started", "systemctl restart compute-agent"},
		"no agent": {func(f *fixture) { f.keepClosed = true; f.remove("/proc/4711") },
			"one-agent", OK, "no process uses", ""},
	} {
		t.Run(name, func(t *testing.T) {
			testproc.Parallel(t, testproc.Light)
			f := healthy(t)
			tc.breakIt(f)
			results := f.examine()
			got := result(t, results, tc.check)
			fix := got.Fix
			if url := f.address; url != "" {
				fix = strings.ReplaceAll(fix, url, "URL")
				_, host, _ := strings.Cut(url, "://")
				fix = strings.ReplaceAll(fix, host, "HOST")
			}
			if got.Severity != tc.severity || !strings.Contains(got.Found, tc.found) || fix != tc.fix {
				t.Errorf("got  %s: %s\n     $ %s\nwant %s: …%s…\n     $ %s",
					got.Severity, got.Found, fix, tc.severity, tc.found, tc.fix)
			}
			if wrong := got.Severity == Warning || got.Severity == Error; wrong != (got.Why != "") {
				t.Errorf("severity %s, and why is %q", got.Severity, got.Why)
			}
		})
	}
}

func answerWith(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}
