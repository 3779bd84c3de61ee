// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/resourcetracker/providerconfig"
)

// configurationTimeout limits the request for the running agent's configuration.
const configurationTimeout = 2 * time.Second

// readVariables are the variables other than COMPUTE_AGENT_… that a configuration depends on.
var readVariables = []string{
	"STATE_DIRECTORY", "RUNTIME_DIRECTORY", "CREDENTIALS_DIRECTORY", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "HOME",
}

// ConfigurationOf returns the sources of this process's configuration, for commands that check it:
// a file, "" for the default one, and what flags override.
func ConfigurationOf(file string, overrides []config.Override) control.Configuration {
	out := control.Configuration{PID: os.Getpid(), UID: os.Geteuid(), Environ: []string{}}
	if file != "" {
		out.File = file
		if abs, err := filepath.Abs(file); err == nil {
			out.File = abs
		}
	}
	for _, pair := range os.Environ() {
		name, _, _ := strings.Cut(pair, "=")
		if strings.HasPrefix(name, "COMPUTE_AGENT_") || slices.Contains(readVariables, name) {
			out.Environ = append(out.Environ, pair)
		}
	}
	out.Executable, _ = os.Executable() // without it, no driver is found next to it
	out.Overrides = overrides
	return out
}

// DriverTables are the tables [drivers.NAME.config], for an agent that adds keys to its files'.
func DriverTables(cfg *config.Config) map[string]json.RawMessage {
	tables := map[string]json.RawMessage{}
	for name, d := range cfg.Drivers {
		if table, err := d.ConfigJSON(); err == nil {
			tables[name] = table
		}
	}
	return tables
}

// LoadRunning reads the configuration of the agent that answers at a socket, from the files as they
// are now, unless that agent has another file than file, "" for any. running is nil if there is no
// such agent, if it is of an older version, or another user's: doctor distinguishes these.
func LoadRunning(
	ctx context.Context, socket, file string,
) (cfg *config.Config, running *control.Configuration, err error) {
	ctx, cancel := context.WithTimeout(ctx, configurationTimeout)
	defer cancel()
	sources, askErr := control.NewClient(socket).Configuration(ctx)
	if askErr != nil || file != "" && !sameFile(file, sources.File) {
		return nil, nil, nil
	}
	from := config.Options{
		File: sources.File, Environ: sources.Environ, Uses: []string{}, UID: func() int { return sources.UID },
		Executable: func() (string, error) {
			if sources.Executable == "" {
				return "", errors.New("the agent does not report the path of its executable")
			}
			return sources.Executable, nil
		},
		Overrides: sources.Overrides,
	}
	cfg, err = config.Load(from)
	if err == nil && sources.Drivers != nil {
		addKeys(cfg, sources.Drivers)
	}
	return cfg, &sources, err
}

// sameFile reports whether two paths are the same file.
func sameFile(a, b string) bool {
	x, err1 := os.Stat(a)
	y, err2 := os.Stat(cmp.Or(b, config.DefaultFile))
	return err1 == nil && err2 == nil && os.SameFile(x, y)
}

// addKeys adds the keys that a standalone agent sets for its drivers.
func addKeys(cfg *config.Config, drivers map[string]json.RawMessage) {
	for name, raw := range drivers {
		var table map[string]any
		if d := cfg.Drivers[name]; d != nil && json.Unmarshal(raw, &table) == nil && table != nil {
			maps.Copy(table, d.Config)
			d.Config = table
		}
	}
}

// ConfigCheck is a valid configuration, as `compute-agent config check` shows it.
type ConfigCheck struct {
	Drivers   []DriverCheck  `json:"drivers"`
	Files     []string       `json:"files"`
	Providers ProviderFiles  `json:"provider_config"`
	Settings  []config.Entry `json:"settings"`
	// Default is the file that would be read if it existed.
	Default string `json:"-"`
	// AgentDescription describes the agent whose configuration it is, "" for none.
	AgentDescription string `json:"-"`
	// Unchecked are keys that name credentials, which systemd passes only to the unit.
	Unchecked []string `json:"-"`
}

// ProviderFiles is the content of the provider.yaml files.
type ProviderFiles struct {
	Directory string                   `json:"directory"`
	Files     []string                 `json:"files"`
	Entries   []providerconfig.Entry   `json:"entries"`
	Warnings  []providerconfig.Warning `json:"warnings"`
}

// CheckConfig checks the provider.yaml files of a configuration, and starts the drivers to check
// their own tables. invalid is what is known to be wrong: the error has that and everything that is
// wrong with the files, and drivers are started only if that is nothing. all includes settings with
// their defaults.
func CheckConfig(ctx context.Context, cfg *config.Config, invalid error, all bool) (ConfigCheck, error) {
	dir := cfg.ProviderConfigDir()
	read, warnings, err := providerconfig.Load(dir)
	if err := errors.Join(invalid, err); err != nil {
		return ConfigCheck{}, err
	}
	check := ConfigCheck{
		Files: append([]string{}, cfg.Files()...), Settings: []config.Entry{}, Default: cfg.File(),
		Unchecked: cfg.UnusedCredentials(),
		Providers: ProviderFiles{
			dir, append([]string{}, read.Files()...), append([]providerconfig.Entry{}, read.Entries()...),
			append([]providerconfig.Warning{}, warnings...),
		},
	}
	if check.Drivers, err = CheckDrivers(ctx, cfg); err != nil {
		return check, err
	}
	var problems []error
	for _, d := range check.Drivers {
		for _, problem := range d.Problems {
			problems = append(problems, errors.New(problem))
		}
	}
	for _, e := range cfg.Entries() {
		if all || e.Source.Kind != config.FromDefault {
			check.Settings = append(check.Settings, e)
		}
	}
	return check, config.Invalid(problems...)
}
