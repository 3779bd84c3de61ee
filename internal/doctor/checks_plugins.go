// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/internal/agent/commands"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/pluginhost/launch"
)

func checkPluginDir(_ context.Context, e *Env) []Result {
	dir := e.Config.Plugins.Dir
	if !e.usesPluginDir() {
		// the plugin checks cover the directories that are used
		return skip("no enabled driver has its plugin in %s", dir)
	}
	real, err := e.resolveLinks(dir)
	if os.IsNotExist(err) {
		return fail(dir+" does not exist", "The agent finds no plugin to start.",
			e.command("install -d -o root -g root -m 0755 %s", dir))
	}
	if err != nil {
		return fail(reason(err, dir), "The agent finds no plugin to start.", e.command("ls -ld %s", dir))
	}
	if r := e.trustedPath(real, true); r != nil {
		return r
	}
	return pass("%s", dir)
}

func (e *Env) usesPluginDir() bool {
	for _, name := range e.Config.EnabledDrivers() {
		if filepath.Dir(e.Config.Drivers[name].Path) == filepath.Clean(e.Config.Plugins.Dir) {
			return true
		}
	}
	return false
}

// checkPlugins gives one result per enabled driver, sorted by name.
func checkPlugins(ctx context.Context, e *Env) []Result {
	var out []Result
	for _, name := range e.Config.EnabledDrivers() {
		d := e.Config.Drivers[name]
		out = append(out, Check{Name: "plugin." + name,
			Title: "Plugin " + name}.named(e.plugin(ctx, name, d.Path, d.SHA256))...)
	}
	if len(out) == 0 {
		return skip("no driver is enabled")
	}
	return out
}

// plugin checks an executable by the agent's own rules.
func (e *Env) plugin(ctx context.Context, name, path, digest string) []Result {
	const why = "The agent cannot start this driver. Placement keeps what it last reported."
	real, err := e.resolveLinks(path)
	if os.IsNotExist(err) {
		found := path + " does not exist"
		if searched := e.Config.PluginDirsOf(name); len(searched) > 1 {
			found = fmt.Sprintf("there is no %s in %s", filepath.Base(path), strings.Join(searched, " or "))
		}
		return fail(found, why, e.command("install -D -o root -g root -m 0755 compute-driver-%s %s", name, path))
	}
	if err != nil {
		return fail(reason(err, path), why, e.command("ls -l %s", path))
	}
	f, err := e.stat(real)
	switch {
	case err != nil:
		return fail(reason(err, path), why, e.command("ls -l %s", path))
	case !f.Mode.IsRegular():
		return fail(path+" is not a regular file", why,
			e.command("install -o root -g root -m 0755 compute-driver-%s %s", name, path))
	}
	if dir, blocked := e.blockedBy(real); blocked {
		return fail(fmt.Sprintf("%s cannot enter %s", e.Agent.Name, dir), why, e.command("chmod o+x %s", dir))
	}
	if r := e.trustedPath(real, false); r != nil {
		return r
	}
	switch {
	case f.Mode&(fs.ModeSetuid|fs.ModeSetgid) != 0:
		return fail(path+" is set-user-ID or set-group-ID",
			"It would run as another user, so the agent refuses to start it.", e.command("chmod ug-s %s", path))
	case f.Mode.Perm()&0o111 == 0 || !e.agentMay(real, f, 5) && e.Agent.UID != 0:
		return fail(fmt.Sprintf("%s has mode %04o: %s cannot read and execute it", path, f.Mode.Perm(), e.Agent.Name),
			why, e.command("chmod 0755 %s", path))
	case digest == "":
		return pass("%s", path)
	}
	sum, err := launch.Digest(ctx, e.path(real))
	if err != nil {
		return skip("%s cannot be read to compare its sha256: %v", path, err)
	}
	if sum != digest {
		return fail(fmt.Sprintf("%s has sha256 %s; the configuration requires %s", path, sum, digest),
			"Either the plugin was updated and drivers."+
				name+".sha256 was not, or the file was tampered with. The agent refuses to start it.", "sha256sum "+
				path)
	}
	return pass("%s, sha256 as configured", path)
}

// checkDriverWarnings gives one result for each warning of each enabled driver, and one for each
// driver without any.
func checkDriverWarnings(ctx context.Context, e *Env) []Result {
	if e.Examine == nil || len(e.Config.EnabledDrivers()) == 0 {
		return skip("no driver was asked")
	}
	examined, err := e.Examine(ctx)
	if err != nil {
		return skip("cannot ask the drivers: %v", err)
	}
	var out []Result
	for _, d := range examined {
		var r []Result
		switch problem := cmp.Or(strings.Join(d.Problems, "; "), d.Unchecked, d.Unseen); {
		case problem != "":
			r = skip("cannot ask it: %s", problem)
		case len(d.Warnings) == 0:
			r = pass("no warnings")
		}
		slices.SortFunc(d.Warnings, func(a, b commands.DriverWarning) int { return cmp.Compare(a.Name, b.Name) })
		for _, w := range d.Warnings {
			r = append(
				r,
				warn(
					w.Name+": "+w.Text,
					"The driver works, but what the warning is about may not.",
					"compute-agent plugin info "+e.Config.Drivers[d.Driver].Path+"   # lists its configuration keys",
				)...)
		}
		out = append(out, Check{Name: "driver." + d.Driver, Title: "Driver " + d.Driver}.named(r)...)
	}
	return out
}

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
