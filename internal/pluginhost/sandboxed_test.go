// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/internal/pluginhost/launch"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestSandboxOfAPlugin: a real driver works in a sandbox, its status says which, and the secrets of
// the environment do not reach it. A changed sandbox needs a new process.
func TestSandboxOfAPlugin(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newRig(t)
	spec := Spec{Name: "fake", Path: fakePath, HostInfo: plugins.HostInfo{Name: "cn1"}}
	spec.Sandbox = &launch.Sandbox{Secrets: []string{r.runtime}}
	p := testproc.Try(r.start(spec)).Or(t)
	status := p.Status()
	if want := fmt.Sprintf("landlock %d, seccomp", launch.OwnKernel().Landlock); status.Sandbox != want {
		t.Errorf("the sandbox is %q, want %q", status.Sandbox, want)
	}
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", status.PID))
	if err != nil || strings.Contains(string(environ), "SECRET") {
		t.Errorf("the environment of the driver: %q, %v", environ, err)
	}
	testproc.Equal(t, spec.otherProcess(spec), "", "the same spec needs another process: %s")
	other := spec
	other.Sandbox = &launch.Sandbox{Secrets: []string{r.runtime}, Write: []string{"/srv"}}
	if spec.otherProcess(other) != "sandbox" ||
		spec.otherProcess(Spec{Path: spec.Path, SHA256: spec.SHA256, Args: spec.Args, Env: spec.Env}) != "sandbox" {
		t.Error("a changed sandbox does not need another process")
	}
}

// TestRequiredSandbox: a driver is not started without a sandbox that it requires, and the error
// says what is missing. Otherwise its status does.
func TestRequiredSandbox(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newRig(t)
	for _, k := range []launch.Kernel{{}, {Landlock: 7}, {Seccomp: true}, {Landlock: 1, Seccomp: true}} {
		r.kernel = k
		_, err := r.open(Spec{Name: "fake", Path: fakePath, Sandbox: &launch.Sandbox{Required: true}})
		if complete := k.Landlock > 0 && k.Seccomp; complete != (err == nil) {
			t.Errorf("%s: %v", k, err)
		}
		if err == nil {
			continue
		}
		if permanentState(err) != Refused || !strings.Contains(err.Error(), k.Lacks()[0]) ||
			!strings.Contains(err.Error(), `drivers.fake.sandbox is "required"`) {
			t.Errorf("%s: %v", k, err)
		}
		// without a supervisor
		_, err = r.Open(t.Context(), Spec{Name: "fake", Path: fakePath, Sandbox: &launch.Sandbox{Required: true}})
		testproc.ErrorHas(t, err, `drivers.fake.sandbox is "required"`, "%v")
	}
}
