// SPDX-License-Identifier: Apache-2.0

package driverpython_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/pluginhost"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// The test binary is the agent, in a process of its own, when the environment names a runtime
// directory for it.
const (
	agentKey = "DRIVER_PYTHON_AGENT"
	unit     = "../../systemd/units/compute-agent.service"
)

// agentMain starts the driver, makes a pass and an instance, reports that, and then runs until its
// standard input ends.
func agentMain(runtime, builtDriver string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	h, err := pluginhost.New(pluginhost.Options{RuntimeDir: runtime, Logger: zerolog.New(os.Stderr),
		Environ: []string{"PATH=" + os.Getenv("PATH")}})
	if err != nil {
		return err
	}
	s := spec(`{"gpus":{"a":4}}`)
	s.Path, s.HostInfo.StateDir = builtDriver, runtime
	p, err := h.Plugin(s)
	if err == nil {
		err = p.Start(ctx)
	}
	tree := &providertree.Tree{}
	if err = errors.Join(err, tree.AddRoot(rootUUID, "cn1")); err != nil {
		return err
	}
	tree, _, err = p.UpdateProviderTree(ctx, tree, "cn1", nil)
	if err != nil {
		return err
	}
	is, err := p.Spawn(ctx, "cn1", instance(), tree)
	if err != nil {
		return err
	}
	fmt.Printf("plugin %d: %d providers, instance %s\n", p.Status().PID, tree.Len(), is.Power)
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	return errors.Join(p.Stop(ctx), h.Close())
}

// agent starts one, below a wrapper if there is any, and returns what it says when it is ready.
func agent(t *testing.T, wrapper ...string) (process *exec.Cmd, finish func() error, said string) {
	t.Helper()
	need(t)
	self, err := os.Executable()
	testproc.Check(t, err)
	runtime := testproc.SocketDir(t)
	args := append(wrapper, self)
	cmd := exec.Command(args[0], args[1:]...)
	log := &testproc.Buffer{}
	cmd.Env, cmd.Stderr = append(os.Environ(), agentKey+"="+runtime, agentKey+"_DRIVER="+builtDriver), log
	in, errIn := cmd.StdinPipe()
	out, errOut := cmd.StdoutPipe()
	testproc.Check(t, errors.Join(errIn, errOut, cmd.Start()))
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	guard := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
	defer guard.Stop()
	said, err = bufio.NewReader(out).ReadString('\n')
	if err != nil {
		_ = cmd.Wait()
		t.Fatalf("the agent said %q (%v); its log:\n%s", said, err, log)
	}
	return cmd, func() error {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			return fmt.Errorf("%w; log:\n%s", err, log)
		}
		if strings.Contains(log.String(), `"level":"warn"`) || strings.Contains(log.String(), `"level":"error"`) {
			return errors.New("warnings in the log:\n" + log.String())
		}
		return nil
	}, said
}

func TestItDiesWithTheAgent(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	cmd, _, said := agent(t)
	var pid int
	if _, err := fmt.Sscanf(said, "plugin %d:", &pid); err != nil || !alive(pid) {
		t.Fatalf("%q: %v", said, err)
	}
	testproc.Check(t, cmd.Process.Kill())
	_ = cmd.Wait()
	testproc.Eventually(t, patience, "the driver ends with the agent",
		testproc.True(func() bool { return !alive(pid) }))
}

// TestItWorksInTheUnitsSandbox: agent and driver work with what the real unit forbids: memory that
// can be written and executed, all capabilities, system calls outside the service's set. The unit's
// file system restrictions are not part of it.
func TestItWorksInTheUnitsSandbox(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	need(t)
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		testproc.NotRun(t, "no systemd-analyze (Debian package: systemd)")
	}
	sandbox := []string{python, "-I", "tests/sandbox.py", unit}
	refused := `import ctypes, mmap, os
libc, data = ctypes.CDLL(None, use_errno=True), mmap.mmap(-1, 4096)
def make_code():
    if libc.mprotect(ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(data))), 4096, 5) != 0:
        raise PermissionError
for what in (lambda: mmap.mmap(-1, 4096, prot=7), make_code, lambda: os.chroot("/"), lambda: os.setpriority(0, 0, 0)):
    try:
        what()
    except PermissionError:
        continue
    raise SystemExit("allowed")
`
	run(t, sandbox[0], append(sandbox[1:], python, "-c", refused)...) // else the rest would show nothing
	_, finish, said := agent(t, sandbox...)
	testproc.Contains(t, said, ": 2 providers, instance Running", "%q")
	testproc.NoError(t, finish())
}
