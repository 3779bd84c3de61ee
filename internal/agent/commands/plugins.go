// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/agent"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/pluginhost"
	"github.com/compute-agent/compute-agent/internal/pluginhost/launch"
	"github.com/compute-agent/compute-agent/internal/pluginhost/trial"
)

// Plugins returns the drivers that are configured or installed, sorted by name.
func Plugins(ctx context.Context, cfg *config.Config) ([]pluginhost.Entry, error) {
	var configured []pluginhost.Spec
	for name, d := range cfg.Drivers {
		configured = append(configured, pluginhost.Spec{Name: name, Path: d.Path, Searched: cfg.PluginDirsOf(name),
			SHA256: d.SHA256, Disabled: !d.Enabled})
	}
	return pluginhost.List(ctx, configured, cfg.PluginDirs())
}

// DeviceLister returns the executable of a driver that lists the devices of this host, as the agent
// finds it if it is configured, else the installed one, and its arguments: the directory that its
// configuration reads instead of /.
func DeviceLister(cfg *config.Config, driver string) (spec pluginhost.Spec, args []string, err error) {
	if cfg.Drivers[driver] == nil {
		spec = pluginhost.Spec{Name: driver, Searched: cfg.PluginDirs()}
		installed, err := launch.Installed(spec.Searched...)
		if spec.Path = installed[driver]; spec.Path == "" {
			spec.Path = filepath.Join(cfg.Plugins.Dir, launch.Prefix+driver)
		}
		return spec, nil, err
	}
	if spec, err = agent.Executable(cfg, driver); err != nil {
		return spec, nil, err
	}
	var keys struct{ Chroot string }
	_ = json.Unmarshal(spec.Config, &keys) // whether its keys are valid is checked by the driver
	if keys.Chroot != "" {
		args = []string{"--chroot", keys.Chroot}
	}
	return spec, args, nil
}

// Trial is a plugin that is started without an agent, for its author.
type Trial struct {
	// Path is the path of the executable, FormerPath that of its last release, or "".
	Path, FormerPath string
	// Config and FormerConfig are files for [config.ReadDriverFile], or "". The tree of
	// FormerConfig needs a reshape to that of Config.
	Config, FormerConfig string
	// NoSandbox starts it without the sandbox in which an agent starts it.
	NoSandbox bool
}

// Options returns how the plugin is started, in the sandbox in which an agent starts it. If a file
// names its driver, the plugin is started to compare the names.
//
// Errors: a [*trial.FileError]; [config.ErrInvalid], of a file's content or because it is for
// another driver; that of ctx.
func (t Trial) Options(ctx context.Context) (trial.SuiteOptions, error) {
	opts := trial.SuiteOptions{Path: t.Path, FormerPath: t.FormerPath}
	if err := checkExecutable(t.Path, "plugin's"); config.Unreadable(err) {
		return opts, &trial.FileError{Problem: "the plugin's executable: " + err.Error()}
	} else if err != nil {
		return opts, &trial.FileError{Problem: err.Error()}
	}
	if t.FormerPath != "" {
		if err := checkExecutable(t.FormerPath, "last release's"); err != nil {
			return opts, &trial.FileError{Problem: err.Error(), Former: true}
		}
	}
	own, err := readTrial(t.Config)
	if err != nil {
		return opts, err
	}
	former, err := readTrial(t.FormerConfig)
	if err != nil {
		return opts, err
	}
	opts.Config, opts.Args, opts.Env, opts.Former = own.table, own.Args, own.Env, former.table
	opts.NoSandbox = t.NoSandbox || own.Sandbox == config.SandboxNone
	if own.Sandbox != config.SandboxNone {
		opts.Sandbox = launch.StandardSandbox(opts.Config, opts.Former)
		opts.Sandbox.Required, opts.Sandbox.Modes = own.Sandbox == config.SandboxRequired, own.AllowChmod
		opts.Sandbox.GrantRead, opts.Sandbox.GrantWrite = own.ReadPaths, own.WritePaths
	}
	if t.NoSandbox {
		opts.Sandbox = nil
	}
	if own.name == "" && former.name == "" {
		return opts, nil
	}
	driver, _, err := trial.Describe(ctx, opts.Spec(), zerolog.Nop())
	if err != nil {
		return opts, ctx.Err() // what is wrong with the plugin is shown when it is tried
	}
	for _, f := range []trialFile{own, former} {
		if f.name != "" && f.name != driver.Name {
			return opts, config.DriverFileProblem(f.path+" is for another driver",
				fmt.Errorf("it has the table [drivers.%s], and %s is driver %q", f.name, t.Path, driver.Name))
		}
	}
	return opts, nil
}

// checkExecutable returns an error for a file that is not executable. whose is what it must be.
func checkExecutable(path, whose string) error {
	st, err := os.Stat(path)
	if err == nil && (!st.Mode().IsRegular() || st.Mode()&0o111 == 0) {
		err = fmt.Errorf("%s is not an executable file: give the path of the %s executable", path, whose)
	}
	return err
}

// trialFile is a file of a driver's author: the driver, NAME of its table or "", and its own keys.
type trialFile struct {
	config.Driver
	path, name string
	table      json.RawMessage
}

// readTrial reads a file; "" is no file.
func readTrial(path string) (f trialFile, err error) {
	if path == "" {
		return trialFile{}, nil
	}
	name, d, err := config.ReadDriverFile(path)
	if config.Unreadable(err) {
		err = &trial.FileError{Problem: err.Error()}
	}
	if err != nil {
		return trialFile{}, err
	}
	table, err := json.Marshal(d.Config)
	if err != nil {
		return trialFile{}, config.DriverFileProblem(path, err)
	}
	return trialFile{Driver: *d, path: path, name: name, table: table}, nil
}
