// SPDX-License-Identifier: Apache-2.0

package testproc

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// python is Debian's own, which has Debian's packages; one from elsewhere on PATH does not.
const python = "/usr/bin/python3"

// service is one of OpenStack's services, from a Debian package.
type service struct {
	name string // in messages
	pkg  string // Debian's package
	// module is one of the package's Python modules; without it the package is not installed.
	module string
	// script is run with a directory of its own and args. It writes "PORT number" to its standard
	// output when it listens, and ends with its standard input.
	script []byte
	args   []string
}

// start runs a service until the test ends and returns its HOST:PORT. Without its package the test
// is skipped, or fails where CI is set.
func (s service) start(t testing.TB) string {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), python, "-c", "import "+s.module).CombinedOutput(); err != nil {
		missing := "Debian's package " + s.pkg + " is not installed (tools/packages.sh test): " + string(out)
		if os.Getenv("CI") != "" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "serve.py")
	if err := os.WriteFile(path, s.script, 0o600); err != nil {
		t.Fatal(err)
	}
	// Not bound to the test's context: the service ends in order, by its standard input.
	cmd := exec.Command(python, append([]string{"-W", "ignore", path, dir}, s.args...)...) //nolint:noctx // see above
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Dir = dir
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := Start(t, "OpenStack's "+s.name, cmd)
	t.Cleanup(func() {
		_ = stdin.Close()
		kill := time.AfterFunc(5*time.Second, func() { _ = syscall.Kill(-p.Pid(), syscall.SIGKILL) })
		<-p.Done()
		kill.Stop()
	})
	const prefix = "PORT "
	line, found := p.Until(t, prefix, 0, func(line string) bool { return strings.HasPrefix(line, prefix) })
	if !found {
		t.Fatalf("OpenStack's %s did not start:\n%s", s.name, strings.Join(p.Lines(), "\n"))
	}
	return "127.0.0.1:" + strings.TrimPrefix(line, prefix)
}
