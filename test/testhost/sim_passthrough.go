// SPDX-License-Identifier: Apache-2.0

package testhost

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// emulator is a wrapper of the real one. It omits the host's devices of a guest: they are made up,
// and QEMU could not open them. And it reserves no memory for the guest, which uses hardly any: the
// made-up host may have more than this machine. All else is the real emulator's, so that libvirt
// has a running guest.
const emulator = `#!/bin/sh
n=$#
while [ "$n" -gt 0 ]; do
	a=$1; shift; n=$((n-1))
	if [ "$a" = -device ] && [ "$n" -gt 0 ]; then
		case $1 in *vfio-pci*) shift; n=$((n-1)); continue;; esac
	fi
	case $a in '{"qom-type":"memory-backend-ram",'*) a=${a%%\}}',"reserve":false}';; esac
	set -- "$@" "$a"
done
exec %s "$@"
`

// emulators writes a wrapper for each installed emulator into a directory. An unchanged one stays:
// libvirt keeps what it learns of an emulator as long as the file's change time is the same.
func emulators(dir string) error {
	for _, arch := range []string{"x86_64", "aarch64"} {
		behind := FindEmulator(arch)
		if behind == "" {
			continue
		}
		text, file := fmt.Sprintf(emulator, behind), filepath.Join(dir, "qemu-system-"+arch)
		if old, err := os.ReadFile(file); err == nil && string(old) == text {
			continue
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := testproc.WriteExecutable(file, []byte(text)); err != nil {
			return err
		}
	}
	return nil
}

// mountUdev gives this namespace what looks like the socket of udevd, if there is none: where /dev
// is not the kernel's, as in a container and after [mountDevices], libudev receives no events
// unless it sees it.
func mountUdev(staging string) error {
	const control = "/run/udev/control"
	if _, err := os.Stat(control); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := mirror("/run", "udev", staging); err != nil {
		return err
	}
	return errors.Join(os.MkdirAll(filepath.Dir(control), 0o755), os.WriteFile(control, nil, 0o600))
}

// mountDevices gives this namespace a /dev with the nodes of VFIO, one for each IOMMU group, all of
// which are /dev/null; the rest of /dev is this machine's.
func mountDevices(staging string) error {
	if err := mirror("/dev", "vfio", staging); err != nil {
		return err
	}
	return vfioNodes()
}

// mirror puts a new file system over a directory, with all of its entries but one, which this
// namespace replaces.
func mirror(dir, without, staging string) error {
	if err := os.MkdirAll(staging, 0o755); err != nil {
		return err
	}
	if err := syscall.Mount("tmpfs", staging, "tmpfs", syscall.MS_NOSUID, "mode=0755,size=1m"); err != nil {
		return fmt.Errorf("mirroring %s: %w", dir, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == without {
			continue
		}
		if err := borrow(e, filepath.Join(dir, e.Name()), filepath.Join(staging, e.Name())); err != nil {
			return fmt.Errorf("mirroring %s: %s: %w", dir, e.Name(), err)
		}
	}
	if err := syscall.Mount(staging, dir, "", syscall.MS_MOVE, ""); err != nil {
		return fmt.Errorf("mirroring %s: %w", dir, err)
	}
	// Where staging is below the directory, a copy of it was mirrored, too, with all that was in it
	// by then. Nothing of it may be left: what removes the simulation's directory must not find
	// this machine's devices in it, and libvirt does not start if it sees huge pages in a directory
	// that was removed.
	if err := syscall.Unmount(staging, syscall.MNT_DETACH); err != nil && !errors.Is(err, syscall.EINVAL) {
		return fmt.Errorf("putting %s away: %w", staging, err)
	}
	return nil
}

// borrow binds an entry of a directory elsewhere. One that is removed meanwhile is omitted.
func borrow(e fs.DirEntry, from, at string) error {
	if e.Type()&fs.ModeSymlink != 0 {
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, at)
	}
	// looks for pts beside it, which it does not find by way of a bind mount: no guest would have a
	// console
	if from == "/dev/ptmx" {
		const ptmx = 5<<8 | 2
		return errors.Join(syscall.Mknod(at, syscall.S_IFCHR|0o666, ptmx),
			os.Chmod(at, 0o666))
	}
	var err error
	if e.IsDir() {
		err = os.Mkdir(at, 0o755)
	} else {
		err = os.WriteFile(at, nil, 0o600)
	}
	if err != nil {
		return err
	}
	err = syscall.Mount(from, at, "", syscall.MS_BIND|syscall.MS_REC, "")
	if errors.Is(err, fs.ErrNotExist) {
		return os.Remove(at)
	}
	return err
}

// vfioNodes makes the nodes for the groups that there are now.
func vfioNodes() error {
	const vfio = "/dev/vfio"
	if err := os.MkdirAll(vfio, 0o755); err != nil {
		return err
	}
	groups, err := os.ReadDir("/sys/kernel/iommu_groups")
	if err != nil {
		return err
	}
	names := []string{"vfio"}
	for _, g := range groups {
		if _, err := strconv.Atoi(g.Name()); err == nil {
			names = append(names, g.Name())
		}
	}
	const null = 1<<8 | 3
	for _, name := range names {
		if err := syscall.Mknod(filepath.Join(vfio, name), syscall.S_IFCHR|0o600, null); err != nil &&
			!errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("making /dev/vfio/%s: %w", name, err)
		}
	}
	return nil
}
