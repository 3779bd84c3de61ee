// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/pluginhost/launch"
)

// TestSandboxOfDrivers: each driver's confinement is what its configuration says and the kernel
// has, and a part that is missing is named.
func TestSandboxOfDrivers(t *testing.T) {
	full := launch.Kernel{Landlock: 6, Seccomp: true}
	for _, c := range []struct {
		name     string
		kernel   launch.Kernel
		driver   config.Driver
		severity Severity
		found    string
	}{
		{"complete", full, config.Driver{Sandbox: config.SandboxRequired}, OK, "landlock 6, seccomp"},
		{"an older kernel", launch.Kernel{Landlock: 4, Seccomp: true},
			config.Driver{Sandbox: config.SandboxRequired}, OK, "signals"},
		{"a driver that changes modes", full,
			config.Driver{Sandbox: config.SandboxLandlock, AllowChmod: true}, OK, "allow_chmod"},
		{"no Landlock", launch.Kernel{Seccomp: true},
			config.Driver{Sandbox: config.SandboxLandlock}, Warning, "seccomp"},
		{"no Landlock, which is required", launch.Kernel{Seccomp: true},
			config.Driver{Sandbox: config.SandboxRequired}, Error, "required"},
		{"no seccomp, which is required", launch.Kernel{Landlock: 6},
			config.Driver{Sandbox: config.SandboxRequired}, Error, "landlock 6"},
		{"none", full, config.Driver{Sandbox: config.SandboxNone}, Warning, "without a sandbox"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.driver.Enabled = true
			e := &Env{Kernel: func() launch.Kernel { return c.kernel },
				Config: &config.Config{Drivers: map[string]*config.Driver{"one": &c.driver}}}
			got := checkSandbox(t.Context(), e)
			if len(got) != 1 || got[0].Severity != c.severity || !strings.Contains(got[0].Found, c.found) ||
				got[0].Name != "sandbox.one" {
				t.Errorf("%+v, want severity %v and %q", got, c.severity, c.found)
			}
		})
	}
}
