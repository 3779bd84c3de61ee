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
	// What the packages depend on, and what reads their manual pages and completions.
	packaged = "python3-grpcio python3-protobuf python3-cryptography man-db mandoc bash-completion zsh fish"
)

// distribution is a Debian, or another system that is made of such packages.
type distribution struct {
	suite    string
	packages string // with what debootstrap installs, and what they depend on
	mirror   string // "": debootstrap's own
	script   string // of debootstrap, where it has none for the suite
	kernel   string // the package of a kernel for virtual machines
	// keyring is the package with the keys of the mirror, where Debian has none of it, and its
	// SHA-256.
	keyring, keyringSum string
}

var distributions = map[string]distribution{
	"debian-12": {suite: "bookworm", packages: products + " " + openStack + " " + packaged,
		kernel: "linux-image-cloud-amd64"},
	"debian-13": {suite: "trixie", packages: products, kernel: "linux-image-cloud-amd64"},
	"ubuntu-24.04": {
		suite: "noble", packages: products, mirror: "http://archive.ubuntu.com/ubuntu",
		script:     "/usr/share/debootstrap/scripts/gutsy",
		kernel:     "linux-image-virtual",
		keyring:    "pool/main/u/ubuntu-keyring/ubuntu-keyring_2023.11.28.1_all.deb",
		keyringSum: "36de43b15853ccae0028e9a767613770c704833f82586f28eb262f0311adb8a8",
	},
}

var onDistribution = flag.String("distribution",
	"debian-12", "the system to boot: debian-12, debian-13 or ubuntu-24.04")

// debootstrap makes a small system in a directory.
func (d distribution) debootstrap(t *testing.T, root string) {
	t.Helper()
	args := []string{"--variant=minbase", "--include=" + system}
	if d.keyring != "" {
		dir := t.TempDir()
		file := filepath.Join(dir, "keyring.deb")
		command(t, "curl", "--fail", "--silent", "--show-error", "--max-time", "60",
			"--output", file, d.mirror+"/"+d.keyring)
		content := testproc.Try(os.ReadFile(file)).Or(t)
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
const (
	policyRC   = "usr/sbin/policy-rc.d"
	noServices = "#!/bin/sh\nexit 101\n"
)

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
	root := filepath.Join(cache, "run-"+nameOf(t))
	t.Cleanup(func() { testproc.NoError(t, os.RemoveAll(root)) })
	command(t, "cp", "-a", "--reflink=auto", debianRoot(t, cache), root)
	return root
}

// cached is a directory of the cache, which fill makes when it is not there. Of several processes
// one makes it.
func cached(t *testing.T, cache, name, what string, fill func(part string)) string {
	t.Helper()
	lock := testproc.Try(os.OpenFile(filepath.Join(cache, "lock-"+name), os.O_CREATE|os.O_RDWR, 0o600)).Or(t)
	defer func() { _ = lock.Close() }()
	must(t, syscall.Flock(int(lock.Fd()), syscall.LOCK_EX))
	dir := filepath.Join(cache, name)
	if _, err := os.Stat(dir); err == nil {
		return dir
	}
	t.Logf("Making %s in %s; later runs use it again.", what, dir)
	part := dir + ".part"
	must(t, os.RemoveAll(part))
	fill(part)
	must(t, os.Rename(part, dir))
	return dir
}

// removeStale removes the roots and disks of processes that were killed. What cannot be removed
// stays: another test may be removing it.
func removeStale(t *testing.T, cache string) {
	t.Helper()
	roots := testproc.Try(filepath.Glob(filepath.Join(cache, "run-*"))).Or(t)
	disks := testproc.Try(filepath.Glob(filepath.Join(cache, "disk-*"))).Or(t)
	roots = append(roots, disks...)
	for _, root := range roots {
		pid := root[strings.LastIndexByte(root, '-')+1:]
		if _, err := os.Stat("/proc/" + pid); errors.Is(err, fs.ErrNotExist) {
			if err := os.RemoveAll(root); err != nil {
				t.Logf("What a test left that was killed stays: %v", err)
			}
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
	key := sha256.Sum256([]byte(of.suite + "\n" + system + "\n" + of.packages))
	return cached(t, cache, fmt.Sprintf("root-%x", key[:6]), "a root of "+*onDistribution, func(part string) {
		of.debootstrap(t, part)
		install(t, part, strings.Fields(of.packages)...)
	})
}

// install installs packages in a root.
func install(t *testing.T, root string, packages ...string) {
	t.Helper()
	must(t, testproc.WriteExecutable(filepath.Join(root, policyRC), []byte(noServices)))
	inRoot(t, root, append([]string{"env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-y",
		"--no-install-recommends"}, packages...)...)
	inRoot(t, root, "apt-get", "clean")
	must(t, os.Remove(filepath.Join(root, policyRC)))
}

// inRoot runs a program of a root, which must succeed, without booting it.
func inRoot(t *testing.T, root string, args ...string) {
	t.Helper()
	command(t, "chroot", append([]string{root}, args...)...)
}

// command runs a program of this machine, which must succeed.
func command(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

var must = testproc.Check
