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

func (p *Plugins) section() section {
	return section{"plugins", []Service{AgentService},
		"Where the drivers' plugins are and how their processes are watched. [drivers.NAME.timeouts] and\n" +
			"[drivers.NAME.restart] override it for one driver.",
		[]key{
			{"dir", restart, "Directory of the plugins: compute-driver-NAME for [drivers.NAME]. Unless it is set, " +
				"drivers are also searched next to the agent's own executable.",
				text{at: &p.Dir, def: "/usr/libexec/compute-agent/plugins", words: "an absolute path",
					check: absolutePath}},
			{"handshake_timeout", live, "Timeout from the start of a plugin to its handshake.",
				duration{at: &p.HandshakeTimeout, def: 30 * time.Second, min: 100 * time.Millisecond,
					max: 10 * time.Minute}},
			{"call_timeout", live, "Timeout of a driver call.",
				duration{at: &p.CallTimeout, def: time.Minute, min: 100 * time.Millisecond, max: time.Hour}},
			{"health_interval", live, "Time between two health checks of a plugin.",
				duration{at: &p.HealthInterval, def: 10 * time.Second, min: 10 * time.Millisecond, max: time.Hour}},
			{"health_timeout", live, "Timeout of a health check.",
				duration{at: &p.HealthTimeout, def: 3 * time.Second, min: 10 * time.Millisecond, max: time.Hour}},
			{"health_misses", live, "Number of consecutive failed health checks after which the process is restarted.",
				number{at: &p.HealthMisses, def: 3, min: 1, max: 100}},
			{"shutdown_timeout", live, "How long a plugin may take to stop before it is killed.",
				duration{at: &p.ShutdownTimeout, def: 10 * time.Second, min: 10 * time.Millisecond,
					max: 10 * time.Minute}},
			{"backoff_min", live, "First delay before a crashed plugin is restarted; it doubles with every crash.",
				duration{at: &p.BackoffMin, def: time.Second, min: 10 * time.Millisecond, max: time.Hour}},
			{"backoff_max", live, "Maximum delay before a crashed plugin is restarted.",
				duration{at: &p.BackoffMax, def: 2 * time.Minute, min: 10 * time.Millisecond, max: 24 * time.Hour}},
			{"crash_limit", live, "Number of crashes within crash_window after which a plugin is quarantined.",
				number{at: &p.CrashLimit, def: 5, min: 1, max: 1000}},
			{"crash_window", live, "Time window in which crashes are counted; a plugin that runs that long resets " +
				"the count.",
				duration{at: &p.CrashWindow, def: 10 * time.Minute, min: time.Second, max: 24 * time.Hour}},
			{"quarantine", live, "How long a plugin is quarantined.",
				duration{at: &p.Quarantine, def: 10 * time.Minute, min: time.Second, max: 24 * time.Hour}},
		}}
}

// driversSection is the name of the table of the drivers' tables.
const driversSection = "drivers"

const driversDoc = "One table per driver. Only drivers with a table are started."

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

// keys declares the keys of [drivers.NAME]. SIGHUP applies all of them: the driver's process is
// configured again or, where it must be, replaced.
func (d *Driver) keys() []key {
	plugins := new(Plugins).section().keys
	// inherited is a duration with the limits of the key of [plugins] that holds unless it is set.
	inherited := func(at *time.Duration, name string) duration {
		limits := named(plugins, name).field.(duration)
		return span(at, limits.min, limits.max, "as plugins."+name)
	}
	return []key{
		{"enabled", live, "Whether the agent starts this driver.", toggle{&d.Enabled, true}},
		{"path", live, "The plugin's executable. Empty means compute-driver-NAME in the directory of [plugins], see " +
			"there.", pathText(&d.Path)},
		{"sha256", live, "SHA-256 of the executable; a different file is not started. Empty means any.",
			text{at: &d.SHA256, words: "64 lower-case hexadecimal digits, as sha256sum prints them", check: digest}},
		{"args", live, "Arguments of the plugin's process.", list{at: &d.Args, words: "an array of strings"}},
		{"env", live, "Environment of the plugin's process, in addition to the few variables that every plugin\ngets.",
			strs{at: &d.Env, words: "a table of strings such as {LIBVIRT_DEBUG = \"1\"}", check: variableName}},
		{"sandbox", live, "\"landlock\": the driver's process, and what it starts, cannot read the agent's state,\n" +
			"credentials, files of secrets and memory, and of what the agent's user may write it\nwrites only to " +
			"/dev, /tmp, /var/tmp, /proc/sys, /sys, its own state directory, the\ndirectories of guests and the " +
			"absolute paths in its own configuration that are not the\nagent's. A filter of system calls (seccomp) " +
			"refuses what no driver needs. What the kernel\nlacks is left out, and `compute-agent status` shows it. " +
			"\"required\": the same, but without\nLandlock (Linux 5.13) or seccomp the driver is not started. " +
			"\"none\": it can do what the\nagent can.", choice{&d.Sandbox, SandboxLandlock, sandboxes}},
		{"read_paths", live, "Files and directories that the sandbox lets the driver read in addition, secret or not.",
			list{at: &d.ReadPaths, words: "an array of absolute paths", check: absolutePath}},
		{"write_paths", live, "Files and directories that the sandbox lets the driver read and write in addition.",
			list{at: &d.WritePaths, words: "an array of absolute paths", check: absolutePath}},
		{"allow_chmod", live, "Whether the driver may change modes, owners and extended attributes of files. The " +
			"sandbox\ncannot tell the agent's files from others here: such a driver can open them to others.",
			toggle{&d.AllowChmod, false}},
		{"unavailable_grace", live, "How long the driver may be unavailable (its process is down or does not answer, " +
			"or the\ndriver is not ready) before its nodes are disabled: their resource providers get the\ntrait " +
			"COMPUTE_STATUS_DISABLED until the driver answers again. Guests keep running. The\ntime starts at the " +
			"first failure after the last successful answer.",
			duration{at: &d.UnavailableGrace, def: 10 * time.Minute, min: 100 * time.Millisecond,
				max: 7 * 24 * time.Hour, zero: "never"}},
		{"timeouts.start", live, "Timeout from the start of the plugin to its handshake.",
			inherited(&d.Timeouts.Start, "handshake_timeout")},
		{"timeouts.configure", live, "Timeout of applying the configuration.",
			inherited(&d.Timeouts.Configure, "call_timeout")},
		{"timeouts.nodes", live, "Timeout of listing nodes.", inherited(&d.Timeouts.Nodes, "call_timeout")},
		{"timeouts.update", live, "Timeout of reporting a node's inventory or guests.",
			inherited(&d.Timeouts.Update, "call_timeout")},
		{"timeouts.health", live, "Timeout of a health check.", inherited(&d.Timeouts.Health, "health_timeout")},
		{"timeouts.stop", live, "How long the plugin may take to stop before it is killed.",
			inherited(&d.Timeouts.Stop, "shutdown_timeout")},
		{"timeouts.instance", live, "Timeout of creating, destroying, starting or stopping an instance.",
			span(&d.Timeouts.Instance, 100*time.Millisecond, 24*time.Hour, "10 minutes")},
		{"restart.health_interval", live, "Time between two health checks of the plugin.",
			inherited(&d.Restart.HealthInterval, "health_interval")},
		{"restart.health_misses", live, "Number of consecutive health checks or calls without an answer after which " +
			"the process\nis restarted; 0 means plugins.health_misses.",
			number{at: &d.Restart.HealthMisses, max: 100}},
		{"restart.backoff_min", live, "First delay before the crashed plugin is restarted; it doubles with every " +
			"crash.", inherited(&d.Restart.BackoffMin, "backoff_min")},
		{"restart.backoff_max", live, "Maximum delay before the crashed plugin is restarted.",
			inherited(&d.Restart.BackoffMax, "backoff_max")},
		{"restart.crash_limit", live, "Number of crashes within crash_window after which the plugin is quarantined; " +
			"0 means\nplugins.crash_limit.", number{at: &d.Restart.CrashLimit, max: 1000}},
		{"restart.crash_window", live, "Time window in which crashes are counted; a plugin that runs that long " +
			"resets the count.",
			inherited(&d.Restart.CrashWindow, "crash_window")},
		{"restart.quarantine", live, "How long the plugin is quarantined.",
			inherited(&d.Restart.Quarantine, "quarantine")},
		{"config", live, "Configuration of the driver itself; the driver's documentation names its keys.",
			free{at: &d.Config, words: "a table"}},
	}
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
