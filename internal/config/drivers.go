// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"time"
)

// Plugins is the section [plugins]: where plugins are and how their processes
// are watched.
type Plugins struct {
	Dir              string
	HandshakeTimeout time.Duration
	CallTimeout      time.Duration
	HealthInterval   time.Duration
	HealthTimeout    time.Duration
	HealthMisses     int
	ShutdownTimeout  time.Duration
	BackoffMin       time.Duration
	BackoffMax       time.Duration
	CrashLimit       int
	CrashWindow      time.Duration
	Quarantine       time.Duration
}

// driversSection is the name of the table of the drivers' tables.
const driversSection = "drivers"

// maxDriverName bounds a driver's name, which becomes part of a file name and
// of variables.
const maxDriverName = 40

// driverName is what a driver may be called. Underscores are out because the
// variables of "a-b" and "a_b" would be the same.
var driverName = regexp.MustCompile(`^[a-z][a-z0-9]*(-[a-z0-9]+)*$`)

// Driver is one section [drivers.NAME].
type Driver struct {
	Enabled bool
	Path    string // Absolute; never empty after Load.
	SHA256  string // 64 lower-case hexadecimal digits, or empty.
	Args    []string
	Env     map[string]string
	Config  map[string]any // As TOML decodes it; the driver knows its keys.

	Sandbox    string   // SandboxLandlock, SandboxRequired or SandboxNone.
	ReadPaths  []string // Absolute; what the sandbox opens in addition.
	WritePaths []string
	AllowChmod bool // The sandbox lets it change modes, owners and extended attributes.
	// UnavailableGrace is how long the driver may not answer until its nodes
	// are disabled; zero: they never are.
	UnavailableGrace time.Duration
	Timeouts         DriverTimeouts
	Restart          DriverRestart
}

// Values of Driver.Sandbox.
const (
	SandboxLandlock = "landlock"
	SandboxRequired = "required"
	SandboxNone     = "none"
)

// sandboxes are the values of Driver.Sandbox.
var sandboxes = []string{SandboxLandlock, SandboxRequired, SandboxNone}

// DriverTimeouts is the table [drivers.NAME.timeouts]: how long this driver may
// take. Zero is as [plugins] says.
type DriverTimeouts struct {
	Start     time.Duration
	Configure time.Duration
	Nodes     time.Duration
	Update    time.Duration
	Health    time.Duration
	Stop      time.Duration
	Instance  time.Duration // Zero is the supervisor's default.
}

// DriverRestart is the table [drivers.NAME.restart]: when this driver's process
// is checked, given up and started again. Zero is as [plugins] says.
type DriverRestart struct {
	HealthInterval time.Duration
	HealthMisses   int
	BackoffMin     time.Duration
	BackoffMax     time.Duration
	CrashLimit     int
	CrashWindow    time.Duration
	Quarantine     time.Duration
}

// driverPath is the whole name of a key of a driver.
func driverPath(driver, name string) string { return dotted(driversSection, driver) + "." + name }

// Process is how the process of a driver is watched: what its own tables say,
// and what [plugins] says of the rest.
func (c *Config) Process(driver string) (DriverTimeouts, DriverRestart) {
	p, d := c.Plugins, Driver{}
	if own := c.Drivers[driver]; own != nil {
		d = *own
	}
	t, r := d.Timeouts, d.Restart
	return DriverTimeouts{
			Start: cmp.Or(t.Start, p.HandshakeTimeout), Configure: cmp.Or(t.Configure, p.CallTimeout),
			Nodes:  cmp.Or(t.Nodes, p.CallTimeout),
			Update: cmp.Or(t.Update, p.CallTimeout), Health: cmp.Or(t.Health, p.HealthTimeout),
			Stop: cmp.Or(t.Stop, p.ShutdownTimeout), Instance: t.Instance,
		}, DriverRestart{
			HealthInterval: cmp.Or(r.HealthInterval, p.HealthInterval),
			HealthMisses:   cmp.Or(r.HealthMisses, p.HealthMisses),
			BackoffMin:     cmp.Or(r.BackoffMin, p.BackoffMin), BackoffMax: cmp.Or(r.BackoffMax, p.BackoffMax),
			CrashLimit:  cmp.Or(r.CrashLimit, p.CrashLimit),
			CrashWindow: cmp.Or(r.CrashWindow, p.CrashWindow), Quarantine: cmp.Or(r.Quarantine, p.Quarantine),
		}
}

// ConfigJSON is the table [drivers.NAME.config] as the JSON object that the
// driver receives; keys are sorted, and no table is the object {}.
func (d *Driver) ConfigJSON() (json.RawMessage, error) {
	if d.Config == nil {
		return json.RawMessage("{}"), nil
	}
	b, err := json.Marshal(d.Config)
	if err != nil {
		return nil, fmt.Errorf("configuration of the driver as JSON: %w", err)
	}
	return b, nil
}
