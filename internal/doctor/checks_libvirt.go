// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bufio"
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

// libvirtSockets are the sockets of the monolithic daemon and of the modular QEMU daemon.
var libvirtSockets = []struct{ path, unit, program string }{
	{"/run/libvirt/libvirt-sock", "libvirtd.socket", "libvirtd"},
	{"/run/libvirt/virtqemud-sock", "virtqemud.socket", "virtqemud"},
}

// libvirtSocket is a socket that the driver may use.
type libvirtSocket struct{ path, unit, program string }

// libvirtSocketsFor returns the sockets for a URI of the driver. named means that the URI contains
// it.
func libvirtSocketsFor(uri string) (out []libvirtSocket, named bool) {
	if u, err := url.Parse(uri); err == nil && u.Query().Get("socket") != "" {
		named = true
	}
	for _, path := range libvirtd.Sockets(uri, true) {
		s := libvirtSocket{path: path}
		for _, usual := range libvirtSockets {
			if filepath.Base(path) == filepath.Base(usual.path) {
				s.unit, s.program = usual.unit, usual.program
			}
		}
		out = append(out, s)
	}
	return out, named
}

func checkLibvirt(ctx context.Context, e *Env) []Result {
	const why = "The libvirt driver cannot see the hypervisor."
	if !e.runsDriver(libvirtDriver) {
		return skip("the driver libvirt is not enabled")
	}
	uri, _ := e.Config.Drivers[libvirtDriver].Config["uri"].(string)
	if uri == "" {
		uri = "qemu:///system"
	}
	sockets, named := libvirtSocketsFor(uri)
	if len(sockets) == 0 {
		return skip("the driver is configured for %q, not for a daemon of this host", uri)
	}
	fix := func(s libvirtSocket, verb string) string {
		if named || s.path != filepath.Join("/run/libvirt", filepath.Base(s.path)) {
			return "ls -l " + s.path + "   # start the daemon that listens there, or correct uri in [drivers.libvirt.config]"
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
			return e.libvirtGroup(fmt.Sprintf("%s cannot enter %s", e.Agent.Name, dir))
		}
		if err != nil {
			return bad(reason(err, s.path), why, e.command("ls -ld %s %s", filepath.Dir(s.path), s.path))
		}
		if !e.may(f, 6) {
			return e.libvirtGroup(fmt.Sprintf("%s (mode %04o, group %d) is not accessible for %s", s.path, f.Mode.Perm(), f.GID, e.Agent.Name))
		}
		conn, err := e.DialUnix(ctx, e.path(s.path))
		switch {
		case err == nil:
			_ = conn.Close()
			return fine("a daemon listens on %s", s.path)
		case errors.Is(err, os.ErrPermission):
			return fine("%s exists and is accessible for %s; only that user can connect to it", s.path, e.Agent.Name)
		case stale == nil:
			found := s.path + " exists, but no process listens on it"
			if !errors.Is(err, syscall.ECONNREFUSED) {
				found = fmt.Sprintf("%s does not answer: %v", s.path, err)
			}
			stale = bad(found, why, fix(s, "restart"))
		}
	}
	if stale != nil {
		return stale
	}
	if named {
		return bad(fmt.Sprintf("no daemon listens on %s, which uri names", sockets[0].path), why, fix(sockets[0], "start"))
	}
	for _, s := range libvirtSockets {
		if _, err := e.LookPath(s.program); err == nil {
			return bad("libvirt is installed, but its daemon does not run", why, e.startLibvirt(s.unit, s.program, "start"))
		}
	}
	return bad("libvirt is not installed", why, e.command("apt-get install libvirt-daemon-system"))
}

// startLibvirt is the command that starts a daemon, with or without systemd.
func (e *Env) startLibvirt(unit, program, verb string) string {
	if !e.systemd() {
		return e.command("%s --daemon", program)
	}
	return e.command("systemctl %s %s", verb, unit)
}

// libvirtGroup is the result for a user without access to libvirt's socket.
func (e *Env) libvirtGroup(found string) []Result {
	const why = "The libvirt driver cannot see the hypervisor."
	gid, err := e.LookupGroup("libvirt")
	switch {
	case err != nil:
		return bad(
			found+", and there is no group libvirt",
			why,
			e.command("groupadd --system libvirt && usermod -aG libvirt %s && systemctl restart libvirtd.socket", e.Agent.Name),
		)
	case slices.Contains(e.Agent.GIDs, gid):
		return bad(found+", though that user is in the group libvirt", why, e.command("systemctl restart libvirtd.socket"))
	}
	return bad(found+"; the user is not in the group libvirt", why, e.command("usermod -aG libvirt %s && systemctl restart compute-agent", e.Agent.Name))
}

func checkKVM(_ context.Context, e *Env) []Result {
	const why = "QEMU emulates the processor (TCG): guests run many times slower, and the driver reports no hardware virtualisation."
	if !e.runsDriver(libvirtDriver) {
		return skip("the driver libvirt is not enabled")
	}
	// The service does not see /dev/kvm (PrivateDevices=), and does not need it.
	for _, p := range []string{"/dev/kvm", "/sys/module/kvm_intel", "/sys/module/kvm_amd"} {
		if _, err := e.stat(p); err == nil {
			return fine("%s exists", p)
		}
	}
	switch {
	case e.cpuFlag("vmx"):
		return warn("the processor has VT-x, but the module kvm_intel is not loaded", why, e.command("modprobe kvm_intel"))
	case e.cpuFlag("svm"):
		return warn("the processor has AMD-V, but the module kvm_amd is not loaded", why, e.command("modprobe kvm_amd"))
	}
	return warn("no /dev/kvm, and the processor has no virtualisation flags: it is disabled in the firmware, or this is a guest without nested virtualisation", why,
		"lscpu | grep -i virtuali")
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
