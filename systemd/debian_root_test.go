// SPDX-License-Identifier: Apache-2.0

package systemd_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// What the root of the machine is made of. A change makes a new root.
const (
	suite    = "bookworm"
	system   = "systemd,systemd-sysv,dbus,iproute2,procps,ca-certificates,curl"
	products = "libvirt-daemon-system qemu-system-x86 qemu-utils"
)

// policyRC keeps packages from starting services while they are installed in a chroot.
const policyRC = "usr/sbin/policy-rc.d"

// freshRoot is a copy of a Debian root with the product installed. It is removed with the test.
func freshRoot(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	cache = filepath.Join(cache, "compute-agent-units")
	must(t, os.MkdirAll(cache, 0o755))
	removeStale(t, cache)
	root := filepath.Join(cache, "run-"+strconv.Itoa(os.Getpid()))
	t.Cleanup(func() {
		if err := os.RemoveAll(root); err != nil {
			t.Error(err)
		}
	})
	command(t, "cp", "-a", "--reflink=auto", debianRoot(t, cache), root)
	command(t, "make", "--no-print-directory", "-C", "..", "install", "DESTDIR="+root)
	return root
}

// removeStale removes the roots of processes that were killed.
func removeStale(t *testing.T, cache string) {
	t.Helper()
	roots, err := filepath.Glob(filepath.Join(cache, "run-*"))
	must(t, err)
	for _, root := range roots {
		_, pid, _ := strings.Cut(filepath.Base(root), "-")
		if _, err := os.Stat("/proc/" + pid); errors.Is(err, fs.ErrNotExist) {
			must(t, os.RemoveAll(root))
		}
	}
}

// debianRoot is a root in the cache, which is made when it is not there.
func debianRoot(t *testing.T, cache string) string {
	t.Helper()
	lock, err := os.OpenFile(filepath.Join(cache, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	must(t, err)
	defer func() { _ = lock.Close() }()
	must(t, syscall.Flock(int(lock.Fd()), syscall.LOCK_EX))
	key := sha256.Sum256([]byte(suite + "\n" + system + "\n" + products))
	root := filepath.Join(cache, fmt.Sprintf("root-%x", key[:6]))
	if _, err := os.Stat(root); err == nil {
		return root
	}
	t.Logf("Making a Debian root in %s; later runs use it again.", root)
	part := root + ".part"
	must(t, os.RemoveAll(part))
	command(t, "debootstrap", "--variant=minbase", "--include="+system, suite, part)
	must(t, os.WriteFile(filepath.Join(part, policyRC), []byte("#!/bin/sh\nexit 101\n"), 0o755))
	command(t, "chroot", append([]string{part, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-y", "--no-install-recommends"},
		strings.Fields(products)...)...)
	command(t, "chroot", part, "apt-get", "clean")
	must(t, os.Remove(filepath.Join(part, policyRC)))
	must(t, os.Rename(part, root))
	return root
}

// command runs a program of this machine, which must succeed.
func command(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

var must = testproc.Check
