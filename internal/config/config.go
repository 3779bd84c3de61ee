// SPDX-License-Identifier: Apache-2.0

package config

import (
	"slices"
)

// DefaultFile is the configuration file that is read when none is named. It may
// be absent; a file that is named must exist.
const DefaultFile = "/etc/compute-agent/compute-agent.toml"

// Config is the whole configuration, every default filled in. It is not
// changed after Load; a reload makes a new one.
type Config struct {
	Agent            Agent
	PlacementClient  PlacementClient
	Tracker          Tracker
	Reshape          Reshape
	Plugins          Plugins
	Drivers          map[string]*Driver
	Log              Log
	Metrics          Metrics
	Tracing          Tracing
	Placement        Placement
	PlacementTLS     PlacementTLS
	PlacementMetrics PlacementMetrics
	Server           Server
	Keystone         Keystone
	CORS             CORS
	Audit            Audit
	Policy           Policy
	DenyList         DenyList
	CellClient       CellClient
	Cell             Cell
	ComputeAPI       ComputeAPI
	Quota            Quota
	Scheduler        Scheduler
	Enrolment        Enrolment
	EnrolmentClient  EnrolmentClient

	file    string
	files   []string
	sources map[string]Source
	named   []NamedFile

	unusedCredentials []NamedFile
	pluginDirs        []string
}

// File is the main configuration file, whether or not it exists.
func (c *Config) File() string { return c.file }

// UnusedCredentials are the keys that name a credential in sections that are not used
// ([Options.Uses]).
func (c *Config) UnusedCredentials() (keys []string) {
	for _, file := range c.unusedCredentials {
		keys = append(keys, file.Key)
	}
	return keys
}

// PluginDirsOf are the directories in which the executable of a driver was looked for, the first
// one first; none if its path says where it is.
func (c *Config) PluginDirsOf(driver string) []string {
	if k := c.sources[driverPath(driver, "path")].Kind; k != "" && k != FromDefault {
		return nil
	}
	return c.PluginDirs()
}

// PluginDirs are the directories in which the executables of drivers without a path are looked for,
// the first one first.
func (c *Config) PluginDirs() []string { return slices.Clone(c.pluginDirs) }

// Files are the files that were read, in the order in which they were applied.
func (c *Config) Files() []string { return slices.Clone(c.files) }

// EnabledDrivers are the names of the drivers to run, sorted.
func (c *Config) EnabledDrivers() []string {
	names := make([]string, 0, len(c.Drivers))
	for _, name := range sortedKeys(c.Drivers) {
		if c.Drivers[name].Enabled {
			names = append(names, name)
		}
	}
	return names
}

// Source tells where the value of a key such as "tracker.pass_deadline" or
// "drivers.libvirt.config.uri" came from. Keys that are not set come from the
// defaults; ok is false for a key that does not exist.
func (c *Config) Source(key string) (s Source, ok bool) {
	if s, ok = c.sources[key]; ok {
		return s, true
	}
	for _, e := range c.Entries() {
		if e.Key == key {
			return e.Source, true
		}
	}
	return Source{}, false
}
