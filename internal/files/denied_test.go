// SPDX-License-Identifier: Apache-2.0

package files

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

const (
	deniedFile = "COMPUTE_AGENT_TEST_DENIED"
	other      = 65534 // a user and a group that own no file
	person     = 54321 // such a user, numbered as people are
	member     = 70054 // such a user, numbered as a directory service numbers people
)

// TestDenied: who may not read a file learns whose it is, and how to open it. Root may read all, so
// that the test runs itself as another user.
func TestDenied(t *testing.T) {
	if path := os.Getenv(deniedFile); path != "" {
		_, err := Read(path)
		if filepath.Base(path) == "list" {
			_, err = os.ReadDir(path)
			err = Denied(err)
		}
		fmt.Println(err)
		return
	}
	testproc.Parallel(t, testproc.Light)
	if os.Geteuid() != 0 {
		testproc.NotRun(t, "needs root")
	}
	dir := testproc.Try(os.MkdirTemp("", "denied")).Or(t)
	t.Cleanup(func() { testproc.NoError(t, os.RemoveAll(dir)) })
	closed, list := filepath.Join(dir, "closed"), filepath.Join(dir, "list")
	testproc.Check(t, errors.Join(os.Chmod(dir, 0o755), os.Mkdir(closed, 0o700), os.Mkdir(list, 0o700),
		os.WriteFile(filepath.Join(dir, "key"), []byte("secret"), 0o600),
		os.WriteFile(filepath.Join(closed, "key"), []byte("secret"), 0o600)))
	program := filepath.Join(dir, "test")
	content := testproc.Try(os.ReadFile(testproc.Try(os.Executable()).Or(t))).Or(t)
	testproc.Check(t, testproc.WriteExecutable(program, content))
	theirs := filepath.Join(dir, "theirs")
	testproc.Check(t, errors.Join(os.WriteFile(theirs, []byte("secret"), 0o600), os.Chown(theirs, other, other)))
	const again = "test -test.run=TestDenied -test.v=false"
	for _, c := range []struct {
		uid        uint32
		path, want string
	}{
		{person, filepath.Join(dir, "key"),
			"it belongs to root:root with mode 0600, and this process runs as USER; run: sudo " + again},
		{member, filepath.Join(dir, "key"),
			"it belongs to root:root with mode 0600, and this process runs as USER; run: sudo " + again},
		{person, theirs,
			"it belongs to OTHER:GROUP with mode 0600, and this process runs as USER; run: sudo -u OTHER " + again},
		{person, filepath.Join(closed, "key"),
			"USER cannot enter DIR, which belongs to root:root with mode 0700; run: sudo " + again},
		{other, filepath.Join(dir, "key"),
			"it belongs to root:root with mode 0600, and this process runs as USER; run: chgrp GROUP PATH && " +
				"chmod g+r PATH"},
		{other, list, "it belongs to root:root with mode 0700, and this process runs as USER; run: chgrp GROUP PATH " +
			"&& chmod g+rx PATH"},
		{other, filepath.Join(closed, "key"),
			"USER cannot enter DIR, which belongs to root:root with mode 0700; run: chgrp GROUP DIR && chmod g+x DIR"},
	} {
		cmd := exec.CommandContext(t.Context(), program, "-test.run=TestDenied", "-test.v=false")
		cmd.Dir, cmd.Env = "/", append(os.Environ(), deniedFile+"="+c.path, "INVOCATION_ID=")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: c.uid, Gid: other}}
		out := testproc.Try(cmd.CombinedOutput()).Or(t)
		want := strings.NewReplacer("PATH", c.path, "DIR", filepath.Dir(c.path), "USER", userName(int(c.uid)),
			"OTHER", userName(other), "GROUP", groupName(other)).Replace(c.want)
		testproc.Contains(t, string(out), "permission denied: "+want, "%s: %s", c.path)
	}
}

// TestServicesOfPersons: a service that a person runs is run as no other user.
func TestServicesOfPersons(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for line, service := range map[string]bool{
		"/usr/bin/compute-agent run": true, "compute-agent standalone --state-dir x": true,
		"compute-agent --config x run":  true,
		"compute-agent placement serve": true, "compute-agent cells serve --name cell1": true,
		"compute-agent cells api":                                   true,
		"/usr/libexec/compute-agent/plugins/compute-driver-libvirt": true,
		"compute-agent": false, "compute-agent status": false, "compute-agent plugin run ./x": false,
		"compute-agent cells manage list-hosts": false,
	} {
		testproc.Equal(t, isService(strings.Fields(line)), service, "%t: %s", line)
	}
}

// TestCommandLineHasNoSecrets: a command that is printed has no passwords, and can be pasted.
func TestCommandLineHasNoSecrets(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for line, want := range map[string]string{
		"/usr/bin/compute-agent placement db check " +
			"--database mysql://u:SECRET@h/db": "compute-agent placement db check --database …",
		"compute-agent placement db check " +
			"--database=mysql://u:SECRET@h/db -o json": "compute-agent placement db check --database=… -o json",
		"compute-agent placement db check " +
			"u:SECRET@tcp(h)/db mysql://h/?password=SECRET": "compute-agent placement db check … …",
		"compute-agent x --token SECRET --api-key=SECRET " +
			"--token-file /a/b -password SECRET": "compute-agent x --token … " +
			"--api-key=… --token-file /a/b -password …",
		"compute-agent placement db check " +
			"--database sqlite:///var/lib/x.db": "compute-agent placement db check --database sqlite:///var/lib/x.db",
		"compute-agent disable --reason=a;b": "compute-agent disable --reason=…",
	} {
		testproc.Equal(t, commandLine(strings.Fields(line)), want, "commandLine: %s")
	}
}
