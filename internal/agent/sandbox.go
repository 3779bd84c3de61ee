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
// configuration.
var instanceDirs = []string{"/var/lib/compute-agent-instances", "/var/lib/nova/instances"}

// formerMachines is the directory in the state directory from which the fake driver takes over
// what a former release left there.
const formerMachines = "machines"

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
	slices.Sort(secrets)
	write := append(slices.Clone(instanceDirs), absolutePaths(d.Config)...)
	write = append(write, filepath.Join(cfg.Agent.StateDir, formerMachines))
	slices.Sort(write) // tables have no order
	return &host.Sandbox{
		Secrets: slices.Compact(secrets), Write: slices.Compact(write), GrantRead: slices.Clone(d.ReadPaths), GrantWrite: slices.Clone(d.WritePaths),
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
