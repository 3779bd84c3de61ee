// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"os"
	"path/filepath"
	"slices"

	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/plugins/host"
)

// instanceDirs are the directories of guests' disks that a driver uses without naming them in its
// configuration: the package's, Nova's, and libvirt's default storage pool.
var instanceDirs = []string{"/var/lib/compute-agent-instances", "/var/lib/libvirt/images", "/var/lib/nova/instances"}

// formerMachines is the directory in the state directory from which the fake driver, and no other,
// takes over what a former release left there.
const formerMachines, fakeDriver = "machines", host.ExecutablePrefix + "fake"

// sandbox is that of a driver's process, nil if the configuration wants none.
func sandbox(cfg *config.Config, name string) *host.Sandbox {
	d := cfg.Drivers[name]
	if d.Sandbox == config.SandboxNone {
		return nil
	}
	secrets := append([]string{"/etc/compute-agent", cfg.Agent.StateDir, cfg.Agent.RuntimeDir}, cfg.SecretFiles()...)
	if dir := os.Getenv("CREDENTIALS_DIRECTORY"); dir != "" {
		secrets = append(secrets, dir)
	}
	protected := cfg.TrustedFiles()
	write := append(slices.Clone(instanceDirs), absolutePaths(d.Config)...)
	grants := slices.Clone(d.WritePaths)
	if filepath.Base(d.Path) == fakeDriver {
		grants = append(grants, filepath.Join(cfg.Agent.StateDir, formerMachines))
	}
	for _, paths := range [][]string{secrets, protected, write} { // tables have no order
		slices.Sort(paths)
	}
	return &host.Sandbox{
		Required: d.Sandbox == config.SandboxRequired, Modes: d.AllowChmod, Secrets: slices.Compact(secrets), Protected: slices.Compact(protected),
		Write: slices.Compact(write), GrantRead: slices.Clone(d.ReadPaths), GrantWrite: grants,
	}
}

// absolutePaths are the paths in a driver's own configuration, whatever their keys are called. The
// root is what much is relative to, not what a driver writes to.
func absolutePaths(value any) (paths []string) {
	switch value := value.(type) {
	case string:
		if filepath.IsAbs(value) && filepath.Clean(value) != "/" {
			paths = append(paths, filepath.Clean(value))
		}
	case []any:
		for _, one := range value {
			paths = append(paths, absolutePaths(one)...)
		}
	case map[string]any:
		for _, one := range value {
			paths = append(paths, absolutePaths(one)...)
		}
	}
	return paths
}
