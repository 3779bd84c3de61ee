// SPDX-License-Identifier: Apache-2.0

package testproc

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
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

// installed says once for each module whether its package is installed: the import takes a second.
var installed sync.Map // of func() error, by module

// require skips the test without the service's package, or fails where CI is set.
func (s service) require(t testing.TB) {
	t.Helper()
	check, _ := installed.LoadOrStore(s.module, sync.OnceValue(func() error {
		out, err := exec.Command(python, "-c", "import "+s.module).CombinedOutput() //nolint:noctx // for all tests
		if err != nil {
			return fmt.Errorf("no package %s of Debian's (tools/packages.sh test): %s", s.pkg, out)
		}
		return nil
	}))
	if err := check.(func() error)(); err != nil { //nolint:forcetypeassert // nothing else is stored
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
}

// start runs a service until the test ends and returns its HOST:PORT. Without its package the test
// is skipped, or fails where CI is set.
func (s service) start(t testing.TB) string {
	t.Helper()
	p, stdin, address := s.run(t, t.TempDir())
	t.Cleanup(func() {
		_ = stdin.Close()
		kill := time.AfterFunc(5*time.Second, func() { _ = syscall.Kill(-p.Pid(), syscall.SIGKILL) })
		<-p.Done()
		kill.Stop()
	})
	return address
}

// run starts a service in a directory and returns its HOST:PORT. It runs until stdin is closed, or
// this process ends.
func (s service) run(t testing.TB, dir string) (p *Process, stdin io.Closer, address string) {
	t.Helper()
	s.require(t)
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
	p = Start(t, "OpenStack's "+s.name, cmd)
	const prefix = "PORT "
	line, found := p.Until(t, prefix, 0, func(line string) bool { return strings.HasPrefix(line, prefix) })
	if !found {
		_ = stdin.Close()
		t.Fatalf("OpenStack's %s did not start:\n%s", s.name, strings.Join(p.Lines(), "\n"))
	}
	return p, stdin, "127.0.0.1:" + strings.TrimPrefix(line, prefix)
}
