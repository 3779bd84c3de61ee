// SPDX-License-Identifier: Apache-2.0

package systemd_test

import (
	"crypto/sha256"
	"errors"
	"flag"
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
	system   = "systemd,systemd-sysv,dbus,iproute2,procps,ca-certificates,curl"
	products = "libvirt-daemon-system qemu-system-x86 qemu-utils"
	// OpenStack's own Placement and clients, for docs/getting-started.md.
	openStack = "python3-placement python3-openstackclient python3-osc-placement"
)

// distribution is a Debian, or another system that is made of such packages.
type distribution struct {
	suite    string
	packages string // with what debootstrap installs, and what they depend on
	mirror   string // "": debootstrap's own
	script   string // of debootstrap, where it has none for the suite
	// keyring is the package with the keys of the mirror, where Debian has none of it, and its
	// SHA-256.
	keyring, keyringSum string
}

var distributions = map[string]distribution{
	"debian-12": {suite: "bookworm", packages: products + " " + openStack},
	"debian-13": {suite: "trixie", packages: products},
	"ubuntu-24.04": {
		suite: "noble", packages: products, mirror: "http://archive.ubuntu.com/ubuntu", script: "/usr/share/debootstrap/scripts/gutsy",
		keyring:    "pool/main/u/ubuntu-keyring/ubuntu-keyring_2023.11.28.1_all.deb",
		keyringSum: "36de43b15853ccae0028e9a767613770c704833f82586f28eb262f0311adb8a8",
	},
}

var onDistribution = flag.String("distribution", "debian-12", "the system to boot: debian-12, debian-13 or ubuntu-24.04")

// debootstrap makes a small system in a directory.
func (d distribution) debootstrap(t *testing.T, root string) {
	t.Helper()
	args := []string{"--variant=minbase", "--include=" + system}
	if d.keyring != "" {
		dir := t.TempDir()
		file := filepath.Join(dir, "keyring.deb")
		command(t, "curl", "--fail", "--silent", "--show-error", "--max-time", "60", "--output", file, d.mirror+"/"+d.keyring)
		content, err := os.ReadFile(file)
		must(t, err)
		if sum := fmt.Sprintf("%x", sha256.Sum256(content)); sum != d.keyringSum {
			t.Fatalf("%s has the SHA-256 %s, and not %s", d.keyring, sum, d.keyringSum)
		}
		command(t, "dpkg-deb", "--extract", file, dir)
		args = append(args, "--keyring="+filepath.Join(dir, "usr/share/keyrings/ubuntu-archive-keyring.gpg"))
	}
	args = append(args, d.suite, root)
	if d.mirror != "" {
		args = append(args, d.mirror, d.script)
	}
	command(t, "debootstrap", args...)
}

// policyRC keeps packages from starting services while they are installed in a chroot.
const policyRC = "usr/sbin/policy-rc.d"

// rootCache is the directory of roots.
func rootCache(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	cache = filepath.Join(cache, "compute-agent-units")
	must(t, os.MkdirAll(cache, 0o755))
	return cache
}

// freshRoot is a copy of a Debian root. It is removed with the test.
func freshRoot(t *testing.T) string {
	t.Helper()
	cache := rootCache(t)
	removeStale(t, cache)
	root := filepath.Join(cache, "run-"+strconv.Itoa(os.Getpid()))
	t.Cleanup(func() {
		if err := os.RemoveAll(root); err != nil {
			t.Error(err)
		}
	})
	command(t, "cp", "-a", "--reflink=auto", debianRoot(t, cache), root)
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
	of, known := distributions[*onDistribution]
	if !known {
		t.Fatalf("-distribution=%s does not exist: use debian-12, debian-13 or ubuntu-24.04", *onDistribution)
	}
	lock, err := os.OpenFile(filepath.Join(cache, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	must(t, err)
	defer func() { _ = lock.Close() }()
	must(t, syscall.Flock(int(lock.Fd()), syscall.LOCK_EX))
	key := sha256.Sum256([]byte(of.suite + "\n" + system + "\n" + of.packages))
	root := filepath.Join(cache, fmt.Sprintf("root-%x", key[:6]))
	if _, err := os.Stat(root); err == nil {
		return root
	}
	t.Logf("Making a root of %s in %s; later runs use it again.", *onDistribution, root)
	part := root + ".part"
	must(t, os.RemoveAll(part))
	of.debootstrap(t, part)
	must(t, os.WriteFile(filepath.Join(part, policyRC), []byte("#!/bin/sh\nexit 101\n"), 0o755))
	command(t, "chroot", append([]string{part, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-y", "--no-install-recommends"},
		strings.Fields(of.packages)...)...)
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
