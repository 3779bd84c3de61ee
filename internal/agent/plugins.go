// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"path/filepath"

	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/pluginhost"
)

// Plugins returns the drivers that are configured or installed, sorted by name.
func Plugins(ctx context.Context, cfg *config.Config) ([]pluginhost.Entry, error) {
	var configured []pluginhost.Spec
	for name, d := range cfg.Drivers {
		configured = append(configured, pluginhost.Spec{Name: name, Path: d.Path, Searched: cfg.PluginDirsOf(name), SHA256: d.SHA256, Disabled: !d.Enabled})
	}
	return pluginhost.List(ctx, configured, cfg.PluginDirs())
}

// DeviceLister returns the executable of a driver that lists the devices of this host, as the agent
// finds it if it is configured, else the installed one, and its arguments: the directory that its
// configuration reads instead of /.
func DeviceLister(cfg *config.Config, driver string) (spec pluginhost.Spec, args []string, err error) {
	if cfg.Drivers[driver] == nil {
		spec = pluginhost.Spec{Name: driver, Searched: cfg.PluginDirs()}
		installed, err := pluginhost.Installed(spec.Searched...)
		if spec.Path = installed[driver]; spec.Path == "" {
			spec.Path = filepath.Join(cfg.Plugins.Dir, pluginhost.ExecutablePrefix+driver)
		}
		return spec, nil, err
	}
	if spec, err = Executable(cfg, driver); err != nil {
		return spec, nil, err
	}
	var keys struct{ Chroot string }
	_ = json.Unmarshal(spec.Config, &keys) // whether its keys are valid is checked by the driver
	if keys.Chroot != "" {
		args = []string{"--chroot", keys.Chroot}
	}
	return spec, args, nil
}
