// SPDX-License-Identifier: Apache-2.0

package systemd_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestFreshMachine does on a small Debian what a newcomer does: it has git, make and Go, clones
// what is committed here, and runs make run and make test, which install what they need. With make
// run it makes the server that is printed, and reads the console log of another, at two starts;
// make demo, too, installs what it needs and ends well.
//
//	make test-systemd RUN='^TestFreshMachine$'
//
// make test runs as a user with sudo, as root, and as root with libvirt installed and running.
// Nothing may be left that could not run, but for what only root can. The modules of Go come from
// this machine, Debian's packages from the network. It takes the time of three runs of make test,
// of which the first one compiles all, also for the others.
func TestFreshMachine(t *testing.T) {
	needsRoot(t)
	root := filepath.Join(rootCache(t), "run-"+nameOf(t))
	t.Cleanup(func() { must(t, os.RemoveAll(root)) })
	command(t, "debootstrap", "--variant=minbase",
		"--include=systemd,systemd-sysv,dbus,git,make,sudo,ca-certificates", "bookworm", root)
	var golang struct{ GOROOT, GOMODCACHE string }
	testproc.Check(t, json.Unmarshal(
		testproc.Try(exec.CommandContext(t.Context(), "go", "env", "-json", "GOROOT", "GOMODCACHE").Output()).Or(t),
		&golang))
	command(t, "cp", "-a", golang.GOROOT, filepath.Join(root, "usr/local/go"))
	// This machine has what it has used so far, and the small one has no other source of modules.
	command(t, "make", "-C", "..", "modules")
	command(t, "go", "list", "-deps", "-test", "-tags=libvirt_dlopen", "work")
	source := testproc.Try(filepath.Abs("..")).Or(t)
	m := &machine{root: root, name: nameOf(t), options: []string{
		"--directory=" + root, "--bind-ro=" + golang.GOMODCACHE + "/cache/download:/modules",
		"--bind-ro=" + source + ":/source",
	}}
	t.Cleanup(m.kill)
	m.boot(t)
	m.write(t, "/etc/profile.d/go.sh",
		"export PATH=$PATH:/usr/local/go/bin GOPROXY=file:///modules GOFLAGS=-modcacherw GONOSUMDB='*' "+
			"GOTOOLCHAIN=local CI=\n")
	m.sh(t, "git config --system safe.directory '*'") // its owner differs
	m.sh(t, "useradd --create-home --shell /bin/bash newcomer; echo 'newcomer ALL=(ALL) NOPASSWD: ALL' "+
		">/etc/sudoers.d/newcomer")
	for _, part := range []struct{ name, prepare, as, with string }{
		{"user with sudo", "true", "newcomer", ""},
		{"root", "mkdir -p ~/.cache; cp -r ~newcomer/.cache/go-build ~/.cache/", "root", "CI=true"},
		{"libvirt", "apt-get install --yes --no-install-recommends libvirt-daemon-system && systemctl is-active " +
			"libvirtd.socket", "root", "CI=true"},
	} {
		t.Run(part.name, func(t *testing.T) {
			m.login(t, "root", part.prepare)
			out := m.login(t, part.as, inClone+part.with+" make test")
			_, notRun, _ := strings.Cut(out, "Not run on this machine:\n")
			for line := range strings.Lines(notRun) {
				if strings.HasPrefix(line, "  ") && (part.as == "root" || !strings.Contains(line, "needs root")) {
					t.Errorf("not run: %s", line)
				}
			}
		})
	}
	t.Run("make run", m.makeRun)
	t.Run("make demo", func(t *testing.T) {
		const last = "✓ No cell has the memory.\n"
		if out := m.login(t, "newcomer", inClone+"make demo"); !strings.HasSuffix(out, last) {
			t.Errorf("its last line is not %s", last)
		}
	})
	m.halt(t, "poweroff")
}

// inClone is a script that goes to a user's clone of what is committed here.
const inClone = "cd; [ -d compute-agent ] || git clone -q /source compute-agent; cd compute-agent; "

// login runs a script as a user, whose variables and PATH it has, however long it takes. What it
// prints is shown at once, and returned.
func (m *machine) login(t *testing.T, user, script string) string {
	t.Helper()
	var out bytes.Buffer
	cmd := m.command(t.Context(), "runuser", "--login", user, "-c", "set -e; "+script)
	cmd.Stdout = io.MultiWriter(t.Output(), &out)
	cmd.Stderr = cmd.Stdout
	testproc.Check(t, cmd.Run())
	return out.String()
}

// printedCurl is the command that make run prints.
var printedCurl = regexp.MustCompile(`(?m)^ +(curl .*/servers .*)$`)

// makeRun does what make run says, with the machine's libvirtd: twice, since the second start finds
// what the first has left. The guest of what is printed has an empty disk and writes nothing, so
// that another server has the console log.
func (m *machine) makeRun(t *testing.T) {
	m.login(t, "root", inClone+"make packages-run build") // what make run does first, however long it takes
	for i, unit := range []string{"newcomer", "newcomer-again"} {
		// runuser would leave the unit for a session of its own, where there is pam_systemd.
		m.run(t, "systemd-run", "--unit="+unit, "--property=KillMode=mixed",
			"--property=WorkingDirectory=/root/compute-agent", "--setenv=HOME=/root",
			"bash", "-l", "-c", "exec make run")
		said := func() string {
			out, _ := m.try("journalctl", "--unit="+unit, "--output=cat", "--no-pager")
			return out
		}
		var curl []string
		eventually(t, "the command that makes a server", func() error {
			out := said()
			if state, _ := m.try("systemctl", "is-active", unit); strings.TrimSpace(state) != "active" {
				t.Fatalf("make run has ended: %s", out)
			}
			if curl = printedCurl.FindStringSubmatch(out); curl == nil {
				return errors.New(out)
			}
			return nil
		})
		m.made(t, m.sh(t, strings.Replace(curl[1], "curl", "curl -sS", 1))) // on a terminal it shows no progress either
		if i == 0 {
			m.bootSector(t, "/var/lib/compute-agent-images/"+image)
		}
		m.made(t, m.api(t, "POST", "/servers", `{"server": {"name": "with-console", "flavorRef": "1", "imageRef": "`+
			image+`", "networks": "none"}}`))
		m.awaitConsole(t)
		m.run(t, "systemctl", "kill", "--kill-whom=all", "--signal=INT", unit)
		eventually(t, "make run to end", func() error {
			if state, _ := m.try("systemctl", "is-active", unit); strings.TrimSpace(state) == "active" {
				return errors.New(said())
			}
			return nil
		})
		testproc.Contains(t, m.sh(t, "virsh list"), "instance-"+m.guest.server, "the guest after make run: %s")
	}
}
