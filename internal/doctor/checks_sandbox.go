// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"strings"

	"github.com/compute-agent/compute-agent/internal/config"
)

// checkSandbox gives one result per enabled driver, sorted by name: what confines it on this
// kernel, and what that does not cover.
func checkSandbox(_ context.Context, e *Env) (out []Result) {
	kernel := e.Kernel()
	lacks := kernel.Lacks()
	for _, name := range e.Config.EnabledDrivers() {
		d := e.Config.Drivers[name]
		var r []Result
		switch {
		case d.Sandbox == config.SandboxNone:
			r = warn("the driver runs without a sandbox: drivers."+name+".sandbox is \"none\"",
				"It can read and change all that the agent can, secrets included.",
				e.command("editor %s", e.Config.File()))
		case d.Sandbox == config.SandboxRequired && (kernel.Landlock == 0 || !kernel.Seccomp):
			r = fail(
				"the kernel has no sandbox for it ("+kernel.String()+"), and drivers."+name+".sandbox is \"required\"",
				"The agent does not start this driver. Placement keeps what it last reported.",
				"cat /sys/kernel/security/lsm   # landlock must be in it: boot with lsm=landlock,...")
		case kernel.Landlock == 0 || !kernel.Seccomp:
			r = warn(kernel.String(), "A driver that is taken over is not kept from all that it must not do: "+
				strings.Join(lacks, "; ")+".",
				"cat /sys/kernel/security/lsm   # landlock must be in it: boot with lsm=landlock,...")
		case d.AllowChmod:
			r = pass("%s; allow_chmod lets it change the modes of the agent's files", kernel)
		case lacks != nil:
			r = pass("%s; but %s", kernel, strings.Join(lacks, "; "))
		default:
			r = pass("%s", kernel)
		}
		out = append(out, Check{Name: "sandbox." + name, Title: "Sandbox of driver " + name}.named(r)...)
	}
	if len(out) == 0 {
		return skip("no driver is enabled")
	}
	return out
}
