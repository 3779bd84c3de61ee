// SPDX-License-Identifier: Apache-2.0

package systemd_test

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/test/testproc"
)

//go:embed testdata/apparmor.sh
var apparmorScript []byte

// apparmorUnit runs the script when the machine has booted.
const apparmorUnit = `[Unit]
Wants=multi-user.target
After=multi-user.target
[Service]
ExecStart=/bin/bash /apparmor.sh
[Install]
WantedBy=default.target
`

// virtualMachine is how long TestAppArmor's machine may take: it is emulated.
const virtualMachine = 15 * time.Minute

// TestAppArmor makes guests in a virtual machine with the distribution's kernel, where AppArmor is
// in force: a container has none of its own.
//
//	make test-systemd DISTRIBUTION=debian-13 RUN='^TestAppArmor$'
//
// It is not part of TestUnits: it takes some five minutes on two processors, besides what the first
// run installs. QEMU is that of the root.
func TestAppArmor(t *testing.T) {
	root := withRoot(t)
	must(t, os.RemoveAll(root))
	command(t, "cp", "-a", "--reflink=auto", machineRoot(t), root)
	command(t, "make", "--no-print-directory", "-C", "..", "install", "DESTDIR="+root)
	m := &machine{root: root, name: nameOf(t)}
	m.write(t, "/etc/compute-agent/conf.d/50-guests.toml", withGuests)
	m.write(t, "/apparmor.sh", string(apparmorScript))
	m.write(t, "/etc/systemd/system/apparmor-test.service", apparmorUnit)
	inRoot(t, root, "systemctl", "enable", "apparmor-test.service")

	disk := filepath.Join(rootCache(t), "disk-"+nameOf(t))
	t.Cleanup(func() { must(t, os.RemoveAll(disk)) })
	command(t, "mke2fs", "-q", "-t", "ext4", "-d", root, disk, "4G")
	must(t, os.Link(disk, filepath.Join(root, "disk")))
	if out := m.emulate(t); !strings.Contains(out, "apparmor.sh: done") || strings.Contains(out, "apparmor.sh: wrong") {
		t.Errorf("the script:\n%s", out)
	}
}

// machineRoot is a root with a kernel and AppArmor.
func machineRoot(t *testing.T) string {
	t.Helper()
	cache := rootCache(t)
	from := debianRoot(t, cache)
	packages := []string{distributions[*onDistribution].kernel, "initramfs-tools", "apparmor", "kmod", "udev"}
	sum := sha256.Sum256([]byte(filepath.Base(from) + strings.Join(packages, " ")))
	return cached(t, cache, fmt.Sprintf("machine-%x", sum[:6]), "a root with a kernel of "+*onDistribution,
		func(part string) {
			command(t, "cp", "-a", "--reflink=auto", from, part)
			install(t, part, packages...)
		})
}

// emulate boots the machine from the file disk in its root, and returns what was written to its
// second serial line when it is off. The first one is the console.
func (m *machine) emulate(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), virtualMachine)
	defer cancel()
	boot := func(name string) string {
		t.Helper()
		files := testproc.Try(filepath.Glob(filepath.Join(m.root, "boot", name+"-*"))).Or(t)
		if len(files) != 1 {
			t.Fatalf("%d files are /boot/%s-*", len(files), name)
		}
		return "/boot/" + filepath.Base(files[0])
	}
	cmd := exec.CommandContext(ctx, "chroot", m.root, "qemu-system-x86_64", "-accel", "tcg,thread=multi", "-smp",
		"2", "-cpu", "max", "-m", "3072",
		"-nodefaults", "-display", "none", "-no-reboot", "-serial", "file:/console", "-serial", "stdio",
		"-kernel", boot("vmlinuz"), "-initrd", boot("initrd.img"),
		"-append", "root=/dev/vda rw console=ttyS0 quiet", "-drive", "file=/disk,if=virtio,format=raw")
	out, err := cmd.CombinedOutput()
	if boot, _ := os.ReadFile(filepath.Join(m.root, "console")); err != nil || len(out) == 0 {
		t.Errorf("the machine: %v\n%s", err, boot)
	}
	return string(out)
}
