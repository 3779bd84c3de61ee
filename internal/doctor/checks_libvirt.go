// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/compute-agent/compute-agent/internal/libvirtd"
)

// libvirtDriver is the driver whose libvirt is checked.
const libvirtDriver = "libvirt"

// libvirtPrograms are the monolithic daemon and the modular QEMU daemon.
var libvirtPrograms = []string{"libvirtd", "virtqemud"}

// libvirtSocket is a socket that the driver may use, with the unit and the program behind it if it
// has one of the usual names.
type libvirtSocket struct{ path, unit, program string }

// libvirtSocketsFor returns the sockets for a URI of the driver: those with write access, or the
// read-only ones. named means that the URI contains it.
func libvirtSocketsFor(uri string, write bool) (out []libvirtSocket, named bool) {
	if u, err := url.Parse(uri); err == nil && u.Query().Get("socket") != "" {
		named = true
	}
	for _, path := range libvirtd.Sockets(uri, write) {
		s := libvirtSocket{path: path}
		for _, program := range libvirtPrograms {
			switch filepath.Base(path) {
			case strings.TrimSuffix(program, "d") + "-sock", program + "-sock":
				s.unit, s.program = program+".socket", program
			case strings.TrimSuffix(program, "d") + "-sock-ro", program + "-sock-ro":
				s.unit, s.program = program+"-ro.socket", program
			}
		}
		out = append(out, s)
	}
	return out, named
}

// createsGuests reports whether the libvirt driver is configured to create and remove guests.
func (e *Env) createsGuests() bool {
	d := e.Config.Drivers[libvirtDriver]
	if d == nil {
		return false
	}
	_, instances := d.Config["instances"]
	return instances
}

func checkLibvirt(ctx context.Context, e *Env) []Result {
	const why = "The libvirt driver cannot see the hypervisor."
	if !e.runsLibvirt() {
		return skip("the driver libvirt is not enabled")
	}
	uri, _ := e.Config.Drivers[libvirtDriver].Config["uri"].(string)
	if uri == "" {
		uri = "qemu:///system"
	}
	write := e.createsGuests()
	sockets, named := libvirtSocketsFor(uri, write)
	if len(sockets) == 0 {
		return skip("the driver is configured for %q, not for a daemon of this host", uri)
	}
	fix := func(s libvirtSocket, verb string) string {
		if named || s.path != filepath.Join("/run/libvirt", filepath.Base(s.path)) {
			return "ls -l " + s.path +
				"   # start the daemon that listens there, or correct uri in [drivers.libvirt.config]"
		}
		return e.startLibvirt(s.unit, s.program, verb)
	}
	var stale []Result
	for _, s := range sockets {
		f, err := e.stat(s.path)
		if os.IsNotExist(err) {
			continue
		}
		if dir, blocked := e.blockedBy(s.path); blocked {
			found := fmt.Sprintf("%s cannot enter %s", e.Agent.Name, dir)
			if !write {
				return fail(found, why, e.command("chmod o+x %s", dir))
			}
			return e.libvirtAccess(write, s, found)
		}
		if err != nil {
			return fail(reason(err, s.path), why, e.command("ls -ld %s %s", filepath.Dir(s.path), s.path))
		}
		if !e.agentMay(s.path, f, 6) {
			return e.libvirtAccess(write, s, fmt.Sprintf("%s (mode %04o, group %d) is not accessible for %s",
				s.path, f.Mode.Perm(), f.GID, e.Agent.Name))
		}
		err = e.dial(ctx, s.path)
		if err == nil || errors.Is(err, os.ErrPermission) {
			if lacking := e.checkDevices(ctx, s); lacking != nil {
				return lacking
			}
		}
		switch {
		case err == nil && write && !e.readsConsoles():
			return warn("a daemon listens on "+s.path+"; no drop-in of compute-agent.service has CAP_DAC_READ_SEARCH",
				"`openstack console log show` fails: virtlogd, which writes the logs, lets only root read them.",
				e.command("%s", installDropIn))
		case err == nil:
			return pass("a daemon listens on %s", s.path)
		case errors.Is(err, os.ErrPermission):
			return pass("%s exists and is accessible for %s; only that user can connect to it", s.path, e.Agent.Name)
		case stale == nil:
			found := s.path + " exists, but no process listens on it"
			if !errors.Is(err, syscall.ECONNREFUSED) {
				found = fmt.Sprintf("%s does not answer: %v", s.path, err)
			}
			stale = fail(found, why, fix(s, "restart"))
		}
	}
	if stale != nil {
		return stale
	}
	if named {
		return fail(fmt.Sprintf("no daemon listens on %s, which uri names", sockets[0].path),
			why, fix(sockets[0], "start"))
	}
	for _, program := range libvirtPrograms {
		if _, err := e.LookPath(program); err == nil {
			return fail("libvirt is installed, but its daemon does not run",
				why, e.startLibvirt(program, program, "start"))
		}
	}
	return fail("libvirt is not installed", why, e.command("apt-get install libvirt-daemon-system"))
}

// dial connects to a socket and hangs up.
func (e *Env) dial(ctx context.Context, path string) error {
	conn, err := e.DialUnix(ctx, e.path(path))
	if err == nil {
		_ = conn.Close()
	}
	return err
}

// checkDevices is the result for a modular QEMU daemon without the daemon that it asks for the
// host's devices; nil for others. It is root that asks.
func (e *Env) checkDevices(ctx context.Context, s libvirtSocket) []Result {
	path, modular := libvirtd.DevicesSocket(s.path)
	if !modular {
		return nil
	}
	if err := e.dial(ctx, path); err == nil || errors.Is(err, os.ErrPermission) {
		return nil
	}
	return fail("virtqemud runs, but virtnodedevd does not: no process listens on "+path,
		"The libvirt driver cannot see the host's devices, and cannot connect when it starts.",
		e.startLibvirt("virtnodedevd.socket virtnodedevd-ro.socket", "virtnodedevd", "enable --now"))
}

// startLibvirt is the command that starts a daemon, with or without systemd.
func (e *Env) startLibvirt(unit, program, verb string) string {
	if !e.systemd() {
		return e.command("%s --daemon", program)
	}
	return e.command("systemctl %s %s", verb, unit)
}

// installDropIn lets the service write guests' disks and read their console logs.
const installDropIn = "install -D -m 644 -t /etc/systemd/system/" + dropIns +
	" /usr/share/compute-agent/instances.conf" +
	" && systemctl daemon-reload && systemctl restart compute-agent"

// readsConsoles reports whether the agent can read the console logs that virtlogd writes. The unit
// of another user may be anything.
func (e *Env) readsConsoles() bool {
	return e.Agent.Name != ServiceUser || !e.systemd() || e.dropIn(func(text string) bool {
		return strings.Contains(text, "\nAmbientCapabilities=CAP_DAC_READ_SEARCH\n")
	})
}

// libvirtAccess is the result for a user without access to a socket of libvirt.
func (e *Env) libvirtAccess(write bool, s libvirtSocket, found string) []Result {
	const why = "The libvirt driver cannot see the hypervisor."
	if !write {
		return fail(found+": the read-only socket is closed, which libvirt has open to all users", why,
			e.command("chmod o+rwx %s", s.path)+
				"   # for good: unix_sock_ro_perms in libvirtd.conf (virtqemud.conf), or SocketMode= of its unit")
	}
	const guests = "The libvirt driver can create no guests ([drivers.libvirt.config.instances])."
	gid, err := e.LookupGroup("libvirt")
	socket := cmp.Or(s.unit, "libvirtd.socket")
	switch {
	case err != nil:
		return fail(found+", and there is no group libvirt", guests,
			e.command("groupadd --system libvirt && systemctl restart %s", socket))
	case slices.Contains(e.Agent.GIDs, gid):
		return fail(found+", though that user is in the group libvirt", guests,
			e.command("systemctl restart %s", socket))
	case e.Agent.Name == ServiceUser:
		return fail(found+"; the service is not in the group libvirt", guests,
			e.command("usermod -aG libvirt %s && %s", e.Agent.Name, installDropIn))
	}
	return fail(found+"; the user is not in the group libvirt", guests,
		e.command("usermod -aG libvirt %s", e.Agent.Name))
}

// checkLibvirtGroup looks for write access that the agent does not need.
func checkLibvirtGroup(_ context.Context, e *Env) []Result {
	switch {
	case !e.runsLibvirt():
		return skip("the driver libvirt is not enabled")
	case e.createsGuests():
		return skip("the driver creates guests, for which it needs write access to libvirt")
	case e.Agent.Name != ServiceUser:
		return skip("the agent runs as %s, not as the service", e.Agent.Name)
	}
	gid, err := e.LookupGroup("libvirt")
	if err != nil || !slices.Contains(e.Agent.GIDs, gid) {
		return pass("the agent only reports, and has no write access to libvirt")
	}
	return warn("the agent only reports, and is in the group libvirt",
		"Who can write to libvirt can become root on this host. An agent that creates no guests reads only.",
		e.command("gpasswd --delete %s libvirt && systemctl restart compute-agent", e.Agent.Name))
}

func checkKVM(_ context.Context, e *Env) []Result {
	const why = "QEMU emulates the processor (TCG): guests run many times slower, and the driver reports no " +
		"hardware virtualisation."
	if !e.runsLibvirt() {
		return skip("the driver libvirt is not enabled")
	}
	// The service does not see /dev/kvm (PrivateDevices=), and does not need it.
	for _, p := range []string{"/dev/kvm", "/sys/module/kvm_intel", "/sys/module/kvm_amd"} {
		if _, err := e.stat(p); err == nil {
			return pass("%s exists", p)
		}
	}
	switch {
	case e.cpuFlag("vmx"):
		return warn("the processor has VT-x, but the module kvm_intel is not loaded",
			why, e.command("modprobe kvm_intel"))
	case e.cpuFlag("svm"):
		return warn("the processor has AMD-V, but the module kvm_amd is not loaded", why, e.command("modprobe kvm_amd"))
	}
	return warn("no /dev/kvm, and the processor has no virtualisation flags: it is disabled in the firmware, or "+
		"this is a guest without nested virtualisation", why, "lscpu | grep -i virtuali")
}

// cpuFlag reports whether the first processor has a flag.
func (e *Env) cpuFlag(flag string) bool {
	f, err := os.Open(e.path("/proc/cpuinfo"))
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(io.LimitReader(f, 1<<20))
	for lines.Scan() {
		if name, flags, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(name) == "flags" {
			return slices.Contains(strings.Fields(flags), flag)
		}
	}
	return false
}
