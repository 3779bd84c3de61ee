// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"os"
	"path/filepath"
	"slices"

	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/pluginhost/launch"
)

// formerMachines is the directory in the state directory from which the fake driver, and no other,
// takes over what a former release left there.
const formerMachines, fakeDriver = "machines", launch.Prefix + "fake"

// driverSandbox returns the sandbox of a driver's process; nil if the configuration disables it.
func driverSandbox(cfg *config.Config, name string) *launch.Sandbox {
	d := cfg.Drivers[name]
	if d.Sandbox == config.SandboxNone {
		return nil
	}
	secrets := append([]string{"/etc/compute-agent", cfg.Agent.StateDir, cfg.Agent.RuntimeDir}, cfg.SecretFiles()...)
	if dir := os.Getenv("CREDENTIALS_DIRECTORY"); dir != "" {
		secrets = append(secrets, dir)
	}
	protected := cfg.TrustedFiles()
	grants := slices.Clone(d.WritePaths)
	if filepath.Base(d.Path) == fakeDriver {
		grants = append(grants, filepath.Join(cfg.Agent.StateDir, formerMachines))
	}
	for _, paths := range [][]string{secrets, protected} { // tables have no order
		slices.Sort(paths)
	}
	return &launch.Sandbox{
		Required: d.Sandbox == config.SandboxRequired, Modes: d.AllowChmod, Secrets: slices.Compact(secrets),
		Protected: slices.Compact(protected),
		Write:     launch.WritePaths(d.Config), GrantRead: slices.Clone(d.ReadPaths), GrantWrite: grants,
	}
}
