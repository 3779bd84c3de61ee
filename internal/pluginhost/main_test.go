// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/compute-agent/compute-agent/internal/pluginhost/launch"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// The test binary plays three parts: the tests, a faulty driver (started by the host under
// test), and an agent that is killed. Each copy knows its part from the environment.
const (
	partKey     = "HOST_TEST_PART"
	partDriver  = "driver"
	partAgent   = "agent"
	modeKey     = "HOST_TEST_MODE"
	scratchKey  = "HOST_TEST_SCRATCH"
	fakePackage = "github.com/compute-agent/compute-agent/cmd/compute-driver-fake"
)

// Executables made once for all tests, in a directory that the host trusts.
var (
	binDir    string
	chaosPath string
	fakePath  string
)

func TestMain(m *testing.M) {
	switch os.Getenv(partKey) {
	case partDriver:
		chaosMain(os.Getenv(modeKey))
		return
	case partAgent:
		agentMain()
		return
	case partEcho:
		echoMain()
		return
	case partUpstream:
		upstreamMain(os.Getenv(rowKey))
		return
	case partOurs:
		oursMain()
		return
	}
	if err := buildExecutables(); err != nil {
		fmt.Fprintln(os.Stderr, "preparing the tests:", err)
		os.Exit(1)
	}
	exit := testproc.DescriptorsClosed()
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(binDir)
		exit(code)
	}))
}

func buildExecutables() (err error) {
	if binDir, err = os.MkdirTemp("", "plugins"); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	chaosPath = filepath.Join(binDir, launch.Prefix+"chaos")
	if err := copyFile(self, chaosPath); err != nil {
		return err
	}
	fakePath = filepath.Join(binDir, launch.Prefix+"fake")
	build := exec.Command("go", "build", "-o", fakePath, fakePackage)
	build.Dir = "../.." // its module, which this one does not require
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w: %s", fakePackage, err, out)
	}
	return os.Chmod(fakePath, 0o755)
}

// copyFile copies an executable.
func copyFile(from, to string) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return testproc.WriteExecutable(to, content)
}
