// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestControlGroupsOfAGuest(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"version 2": {
			"0::/machine/qemu-1-web.libvirt-qemu/libvirt/emulator\n",
			[]string{"/sys/fs/cgroup/machine/qemu-1-web.libvirt-qemu", "/sys/fs/cgroup/unified/machine/qemu-1-web.libvirt-qemu"},
		},
		"version 1, with what libvirt does not use": {
			"4:cpu,cpuacct:/machine/qemu-1-web.libvirt-qemu/emulator\n3:freezer:/\n2:name=systemd:/user.slice\n",
			[]string{"/sys/fs/cgroup/cpu,cpuacct/machine/qemu-1-web.libvirt-qemu"},
		},
		"a guest without": {"0::/user.slice/session-1.scope\n", nil},
		"another's name":  {"0::/machine/lxc-1-web.libvirt-lxc\n", nil},
		"nonsense":        {"\n:\nx\n0::\n", nil},
	} {
		if diff := cmp.Diff(c.want, guestCgroups(c.text)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestRemoveControlGroup(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "qemu-1-web.libvirt-qemu")
	if err := os.MkdirAll(filepath.Join(dir, "libvirt", "emulator"), 0o755); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time nothing is there
		if err := removeCgroup(dir); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Error("it is still there")
		}
	}
}
