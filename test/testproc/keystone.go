// SPDX-License-Identifier: Apache-2.0

package testproc

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

//go:embed keystone.py
var keystoneScript []byte

// python is Debian's own, which has Debian's packages; one from elsewhere on PATH does not.
const python = "/usr/bin/python3"

// KeystonePassword is that of the user "admin" of the project "admin", both in the domain
// "Default".
const KeystonePassword = "not-a-secret"

// keystoneInstalled is nil if it is: the import takes a second.
var keystoneInstalled = sync.OnceValue(func() error {
	out, err := exec.Command(python, "-c", "import keystone.server.wsgi").
		CombinedOutput()
	if err != nil {
		return fmt.Errorf("OpenStack's Keystone needs Debian's package python3-keystone (tools/packages.sh real): %s",
			out)
	}
	return nil
})

// StartKeystone runs OpenStack's identity service until the test ends and returns the endpoint of
// its API v3. Its only user is the admin. It takes some ten seconds. Without the package the test
// is not run.
func StartKeystone(t testing.TB) string {
	t.Helper()
	if err := keystoneInstalled(); err != nil {
		NotRun(t, err.Error())
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "serve.py")
	Check(t, os.WriteFile(path, keystoneScript, 0o600))
	// Not bound to the test's context: it ends in order, by its standard input.
	cmd := exec.Command(python, "-W", "ignore", path, dir, KeystonePassword) //nolint:noctx // for all tests
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Dir = dir
	stdin, err := cmd.StdinPipe()
	Check(t, err)
	p := Start(t, "OpenStack's Keystone", cmd)
	t.Cleanup(func() {
		_ = stdin.Close()
		kill := time.AfterFunc(Patience, func() { _ = syscall.Kill(-p.Pid(), syscall.SIGKILL) })
		<-p.Done()
		kill.Stop()
	})
	const prefix = "PORT "
	line, found := p.Until(t, prefix, 0, func(line string) bool { return strings.HasPrefix(line, prefix) })
	if !found {
		t.Fatalf("OpenStack's Keystone did not start:\n%s", strings.Join(p.Lines(), "\n"))
	}
	return "http://127.0.0.1:" + strings.TrimPrefix(line, prefix) + "/v3"
}
