// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestMain is the tests, or the hostile driver that one of them starts.
func TestMain(m *testing.M) {
	if os.Getenv(hostileDir) != "" {
		hostileMain()
		return
	}
	writable[slices.Index(writable, "/tmp")] = "/none" // the tests' own directories are there
	goleak.VerifyTestMain(m, goleak.Cleanup(testproc.DescriptorsClosed()))
}

// runConfined runs a script as a plugin's process is run, and returns what it wrote.
func runConfined(t *testing.T, s *Sandbox, k Kernel, script string, own ...string) string {
	t.Helper()
	dir := t.TempDir()
	program, output := filepath.Join(dir, "program"), filepath.Join(dir, "output")
	testproc.Check(t, testproc.WriteExecutable(program, []byte("#!/bin/sh\nexec >>"+output+" 2>/dev/null\n"+script)))
	exe := testproc.Try(os.Open(program)).Or(t)
	defer func() { _ = exe.Close() }()
	cmd := exec.CommandContext(t.Context(), "/proc/self/fd/3")
	cmd.Args, cmd.Dir, cmd.ExtraFiles = []string{program}, "/", []*os.File{exe}
	cmd.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	start := cmd.Start
	if s != nil {
		made := testproc.Try(s.Confine(k, exe, append(own, dir)...)).Or(t)
		start = func() error { return made.Start(cmd) }
	}
	testproc.Check(t, start())
	if err := cmd.Wait(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	written := testproc.Try(os.ReadFile(output)).Or(t)
	return string(written)
}

// TestSandbox: a process in a sandbox, and what it starts, reads everything but secrets, writes
// only where it may, and does not get at the agent's memory; with each version of Landlock up to
// that of the kernel.
func TestSandbox(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	if landlockABI() == 0 {
		t.Fatal("the kernel of this machine has no Landlock: boot it with landlock in lsm=")
	}
	root := t.TempDir()
	for _, dir := range []string{"state/drivers/one", "state/other", "etc/agent", "guests/below", "open"} {
		testproc.Check(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	for _, file := range []string{"state/identity", "state/other/f", "state/drivers/one/f", "etc/agent/key",
		"etc/passwd", "guests/secret", "guests/below/f", "open/f", "state/granted"} {
		testproc.Check(t, os.WriteFile(filepath.Join(root, file), []byte("x"), 0o644))
	}
	testproc.Check(t, os.Symlink(filepath.Join(root, "state"), filepath.Join(root, "open", "link")))
	testproc.Check(t, os.Symlink(filepath.Join(root, "etc"), filepath.Join(root, "config")))
	at := func(path string) string { return filepath.Join(root, path) }
	s := &Sandbox{
		Secrets:   []string{at("state"), at("config/agent"), at("guests/secret"), at("not/there"), "", "relative"},
		Write:     []string{at("guests"), at("state"), at("none")},
		GrantRead: []string{at("state/granted")}, GrantWrite: []string{at("open/f")},
	}
	agent := fmt.Sprintf("/proc/%d/", os.Getpid())
	attempts := []struct {
		name, script string
		allowed      bool // in the sandbox; without one, all are
	}{
		{"read the system", "cat /bin/sh /etc/passwd /proc/meminfo && ls /usr /proc /sys", true},
		{"read another file", "cat " + at("etc/passwd"), true},
		{"read a directory with a secret", "cat " + at("guests/below/f"), true},
		{"read the state", "cat " + at("state/identity"), false},
		{"list directories", "ls / /etc " + at("state"), true},
		{"read the state by a link", "cat " + at("open/link/identity"), false},
		{"read the state of another driver", "cat " + at("state/other/f"), false},
		{"read a secret whose path has a link", "cat " + at("etc/agent/key"), false},
		{"read a secret among guests", "cat " + at("guests/secret"), false},
		{"read in a process that it starts", "sh -c 'cat " + at("state/identity") + "'", false},
		{"read what was granted", "cat " + at("state/granted"), true},
		{"write to what was granted", "echo x >>" + at("open/f"), true},
		{"read and write its own state", "cat " + at("state/drivers/one/f") + " && touch " +
			at("state/drivers/one/new"), true},
		{"write to guests", "touch " + at("guests/below/new") + " && mkdir -p " + at("guests/below/d") + " && mv -f " +
			at("guests/below/new") + " " + at("guests/below/d"), true},
		{"write to the state", "echo x >>" + at("state/identity"), false},
		{"remove a secret", "test -e " + at("guests/secret") + " && rm " +
			at("guests/secret") + " && touch " + at("guests/secret"), false},
		{"write to a device", "echo >/dev/null", true},
		{"open the memory of the agent", "exec 3<" + agent + "mem", false},
		{"see the program of the agent", "readlink " + agent + "exe", false},
		{"see the descriptors of the agent", "readlink " + agent + "fd/0", false},
		{"read files as the agent sees them", "cat " + agent + "root" + at("state/identity"), false},
	}
	if os.Geteuid() != 0 { // the kernel lets those with CAP_PERFMON
		attempts = append(attempts, attempts[0])
		attempts[len(attempts)-1].name, attempts[len(attempts)-1].script, attempts[len(attempts)-1].allowed =
			"read the environment of the agent", "cat "+agent+"environ", false
	}
	var script strings.Builder
	for _, a := range attempts {
		fmt.Fprintf(&script, "if ( %s ) >/dev/null; then echo '%s'; fi\n", a.script, a.name)
	}
	for abi := 0; abi <= landlockABI(); abi++ {
		t.Run(fmt.Sprintf("version %d", abi), func(t *testing.T) {
			in := s
			if abi == 0 {
				in = nil
			}
			done := strings.Split(runConfined(t, in, Kernel{abi, true}, script.String(), at("state/drivers/one")), "\n")
			for _, a := range attempts {
				want := a.allowed || abi == 0
				testproc.Equal(t, slices.Contains(done, a.name), want, "%s: %v", a.name)
			}
		})
	}
	// The threads of the agent that go on are not in the sandbox.
	for range 100 {
		testproc.Try(os.ReadFile(at("state/identity"))).Or(t)
	}
}

// TestSandboxPlantedLinks: what a driver leaves where one of its paths is configured does not open
// secrets to it, nor to a process that starts later. Links that root made elsewhere are followed.
func TestSandboxPlantedLinks(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	root := t.TempDir()
	at := func(path string) string { return filepath.Join(root, path) }
	for _, dir := range []string{"state/other", "state/drivers/one", "guests/images", "big", "granted", "links"} {
		testproc.Check(t, os.MkdirAll(at(dir), 0o755))
	}
	for _, file := range []string{"state/identity.pem", "state/ca.pem", "state/other/key"} {
		testproc.Check(t, os.WriteFile(at(file), []byte("secret\n"), 0o600))
	}
	link := func(to, path string) {
		t.Helper()
		testproc.Check(t, os.Symlink(at(to), at(path)))
	}
	link("big", "links/storage")
	link("state/other", "links/other")
	s := &Sandbox{
		Secrets: []string{at("state"), at("state/identity.pem")},
		Write: []string{at("guests"), at("guests/images"), at("guests/base"), at("guests/ca"),
			at("guests/way/other"), at("links/storage"), at("links/other")},
		GrantRead:  []string{at("guests/read")},
		GrantWrite: []string{at("granted"), at("granted/below")},
	}
	own := at("state/drivers/one")
	run := func(script string) string { return runConfined(t, s, OwnKernel(), script, own) }
	if got := run("cd " + at("guests") + " && rmdir images && ln -s " + at("state/identity.pem") + " images && ln -s " +
		at("state/other") + " base && ln -s " + at("state/ca.pem") +
		" ca && ln -s " + at("state") + " way && ln -s " + at("state/other") + " read && ln -s " + at("state") + " " +
		at("granted/below") + " && echo planted"); got != "planted\n" {
		t.Fatalf("%q", got)
	}
	var script strings.Builder
	for _, file := range []string{"state/identity.pem", "state/ca.pem", "state/other/key", "guests/images",
		"guests/base/key", "guests/ca", "granted/below/ca.pem"} {
		fmt.Fprintf(&script, "cat %[1]s && echo read %[1]s\n ( echo mine >>%[1]s ) && echo wrote %[1]s\n", at(file))
	}
	script.WriteString("touch " + at("state/new") + " && echo made\n")
	testproc.Equal(t, run(script.String()), "", "after the links were planted, the driver gets: %s")
	if os.Geteuid() == 0 {
		if got := run("touch " + at("links/storage/new") + " && echo ok"); got != "ok\n" {
			t.Errorf("a link of root is not followed: %q", got)
		}
	}
	// The driver's own directory, if it could be replaced.
	testproc.Check(t, os.Remove(own))
	link("state/other", "state/drivers/one")
	if err := os.Lchown(own, 65534, 65534); err != nil && os.Geteuid() == 0 {
		t.Fatal(err)
	}
	testproc.Samef(t, run("cat "+at("state/other/key")), "its own directory is a link")
	exe := testproc.Try(os.Open("/bin/true")).Or(t)
	defer func() { _ = exe.Close() }()
	r := testproc.Try(s.build(landlockABI(), exe, own)).Or(t)
	r.close()
	slices.Sort(r.skipped)
	want := []string{at("granted/below"), at("guests/base"), at("guests/ca"), at("guests/images"), at("guests/read"),
		at("guests/way/other"), at("links/other"), own}
	if os.Geteuid() != 0 {
		want = slices.Insert(want, len(want)-1, at("links/storage"))
	}
	testproc.EqualList(t, r.skipped, want, "skipped %q")
}

// TestStandard: a driver that is tried without an agent writes where its configurations say,
// and reads nothing of an agent that is installed here.
func TestStandard(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	got := StandardSandbox(
		[]byte(`{"images": "/srv/b/../images", "root": "/", "more": ["relative", {"deep": "/srv/a"}]}`), nil,
		[]byte("no JSON"), []byte(`{"images": "/srv/a"}`))
	want := append([]string{"/srv/a", "/srv/images"}, instanceDirs...)
	slices.Sort(want)
	testproc.EqualList(t, got.Write, want, "writes to %q")
	if !slices.Contains(got.Secrets, "/etc/compute-agent") ||
		!slices.Contains(got.Secrets, "/var/lib/compute-agent") || got.Modes || got.Required {
		t.Errorf("%+v", got)
	}
}
