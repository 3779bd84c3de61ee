// SPDX-License-Identifier: Apache-2.0

package config

import (
	"regexp"
	"slices"
	"strings"
	"time"
)

// driversSection is the name of the table of the drivers' tables.
const driversSection = "drivers"

const driversDoc = "One table per driver. Only drivers with a table are started."

// maxDriverName bounds a driver's name, which becomes part of a file name and
// of variables.
const maxDriverName = 40

// driverName is what a driver may be called. Underscores are out because the
// variables of "a-b" and "a_b" would be the same.
var driverName = regexp.MustCompile(`^[a-z][a-z0-9]*(-[a-z0-9]+)*$`)

// span is a duration of a driver that is "0s" by default.
func span(at func(*Driver) *time.Duration, least, most time.Duration, zero string) duration[Driver] {
	return duration[Driver]{at: at, min: least, max: most, zero: zero}
}

// driverGroups are the tables below [drivers.NAME] whose keys are the agent's,
// by name: that of timeouts.start is timeouts.
var driverGroups = []string{"timeouts", "restart"}

// driverGroup splits the name of a driver's key into that of its table below
// [drivers.NAME], or "", and its own.
func driverGroup(name string) (group, rest string) {
	if group, rest, below := strings.Cut(name, "."); below && slices.Contains(driverGroups, group) {
		return group, rest
	}
	return "", name
}

// driverPath is the key of a driver with that name in driverKeys.
func driverPath(driver, name string) string { return dotted(driversSection, driver) + "." + name }

// sandboxes are the values of Driver.Sandbox.
var sandboxes = []string{SandboxLandlock, SandboxRequired, SandboxNone}

// driverKeys declares the keys of [drivers.NAME]. SIGHUP applies all of them:
// the driver's process is configured again or, where it must be, replaced.
var driverKeys = []key[Driver]{
	{"enabled", live, "Whether the agent starts this driver.",
		toggle[Driver]{func(d *Driver) *bool { return &d.Enabled }, true}},
	{"path", live, "The plugin's executable. Empty means compute-driver-NAME in the directory of [plugins], see there.",
		text[Driver]{at: func(d *Driver) *string { return &d.Path }, words: "an absolute path", check: absolutePath}},
	{"sha256", live, "SHA-256 of the executable; a different file is not started. Empty means any.",
		text[Driver]{at: func(d *Driver) *string { return &d.SHA256 },
			words: "64 lower-case hexadecimal digits, as sha256sum prints them", check: digest}},
	{"args", live, "Arguments of the plugin's process.",
		list[Driver]{at: func(d *Driver) *[]string { return &d.Args }, words: "an array of strings"}},
	{"env", live, "Environment of the plugin's process, in addition to the few variables that every plugin\ngets.",
		strs[Driver]{at: func(d *Driver) *map[string]string { return &d.Env },
			words: "a table of strings such as {LIBVIRT_DEBUG = \"1\"}", check: variableName}},
	{
		"sandbox",
		live,
		"\"landlock\": the driver's process, and what it starts, cannot read the agent's state,\ncredentials, files " +
			"of secrets and memory, and of what the agent's user may write it\nwrites only to /dev, /tmp, /var/tmp, " +
			"/proc/sys, /sys, its own state directory, the\ndirectories of guests and the absolute paths in its own " +
			"configuration that are not the\nagent's. A filter of system calls (seccomp) refuses what no driver " +
			"needs. What the kernel\nlacks is left out, and `compute-agent status` shows it. \"required\": the " +
			"same, but without\nLandlock (Linux 5.13) or seccomp the driver is not started. \"none\": it can do " +
			"what the\nagent can.",
		choice[Driver]{func(d *Driver) *string { return &d.Sandbox }, SandboxLandlock, sandboxes},
	},
	{"read_paths", live, "Files and directories that the sandbox lets the driver read in addition, secret or not.",
		list[Driver]{at: func(d *Driver) *[]string { return &d.ReadPaths }, words: "an array of absolute paths",
			check: absolutePathRequired}},
	{"write_paths", live, "Files and directories that the sandbox lets the driver read and write in addition.",
		list[Driver]{at: func(d *Driver) *[]string { return &d.WritePaths }, words: "an array of absolute paths",
			check: absolutePathRequired}},
	{
		"allow_chmod",
		live,
		"Whether the driver may change modes, owners and extended attributes of files. The sandbox\ncannot tell the " +
			"agent's files from others here: such a driver can open them to others.",
		toggle[Driver]{func(d *Driver) *bool { return &d.AllowChmod }, false},
	},
	{
		"unavailable_grace",
		live,
		"How long the driver may be unavailable (its process is down or does not answer, or the\ndriver is not " +
			"ready) before its nodes are disabled: their resource providers get the\ntrait COMPUTE_STATUS_DISABLED " +
			"until the driver answers again. Guests keep running. The\ntime starts at the first failure after the " +
			"last successful answer.",
		duration[Driver]{
			at:   func(d *Driver) *time.Duration { return &d.UnavailableGrace },
			def:  10 * time.Minute,
			min:  100 * time.Millisecond,
			max:  7 * 24 * time.Hour,
			zero: "never",
		},
	},
	{"timeouts.start", live, "Timeout from the start of the plugin to its handshake.",
		span(func(d *Driver) *time.Duration { return &d.Timeouts.Start }, 100*time.Millisecond, 10*time.Minute,
			"as plugins.handshake_timeout")},
	{"timeouts.configure", live, "Timeout of applying the configuration.",
		span(func(d *Driver) *time.Duration { return &d.Timeouts.Configure }, 100*time.Millisecond,
			time.Hour, "as plugins.call_timeout")},
	{"timeouts.nodes", live, "Timeout of listing nodes.",
		span(func(d *Driver) *time.Duration { return &d.Timeouts.Nodes }, 100*time.Millisecond,
			time.Hour, "as plugins.call_timeout")},
	{"timeouts.update", live, "Timeout of reporting a node's inventory or guests.",
		span(func(d *Driver) *time.Duration { return &d.Timeouts.Update }, 100*time.Millisecond,
			time.Hour, "as plugins.call_timeout")},
	{"timeouts.health", live, "Timeout of a health check.",
		span(func(d *Driver) *time.Duration { return &d.Timeouts.Health }, 10*time.Millisecond, time.Hour,
			"as plugins.health_timeout")},
	{"timeouts.stop", live, "How long the plugin may take to stop before it is killed.",
		span(func(d *Driver) *time.Duration { return &d.Timeouts.Stop }, 10*time.Millisecond, 10*time.Minute,
			"as plugins.shutdown_timeout")},
	{"timeouts.instance", live, "Timeout of creating, destroying, starting or stopping an instance.",
		span(func(d *Driver) *time.Duration { return &d.Timeouts.Instance }, 100*time.Millisecond,
			24*time.Hour, "10 minutes")},
	{"restart.health_interval", live, "Time between two health checks of the plugin.",
		span(func(d *Driver) *time.Duration { return &d.Restart.HealthInterval }, 10*time.Millisecond, time.Hour,
			"as plugins.health_interval")},
	{"restart.health_misses", live,
		"Number of consecutive health checks or calls without an answer after which the process\nis restarted; 0 " +
			"means plugins.health_misses.",
		number[Driver]{at: func(d *Driver) *int { return &d.Restart.HealthMisses }, max: 100}},
	{"restart.backoff_min", live, "First delay before the crashed plugin is restarted; it doubles with every crash.",
		span(func(d *Driver) *time.Duration { return &d.Restart.BackoffMin }, 10*time.Millisecond,
			time.Hour, "as plugins.backoff_min")},
	{"restart.backoff_max", live, "Maximum delay before the crashed plugin is restarted.",
		span(func(d *Driver) *time.Duration { return &d.Restart.BackoffMax }, 10*time.Millisecond,
			24*time.Hour, "as plugins.backoff_max")},
	{"restart.crash_limit", live,
		"Number of crashes within crash_window after which the plugin is quarantined; 0 means\nplugins.crash_limit.",
		number[Driver]{at: func(d *Driver) *int { return &d.Restart.CrashLimit }, max: 1000}},
	{"restart.crash_window", live,
		"Time window in which crashes are counted; a plugin that runs that long resets the count.",
		span(func(d *Driver) *time.Duration { return &d.Restart.CrashWindow }, time.Second,
			24*time.Hour, "as plugins.crash_window")},
	{"restart.quarantine", live, "How long the plugin is quarantined.",
		span(func(d *Driver) *time.Duration { return &d.Restart.Quarantine }, time.Second,
			24*time.Hour, "as plugins.quarantine")},
	{"config", live, "Configuration of the driver itself; the driver's documentation names its keys.",
		free[Driver]{at: func(d *Driver) *map[string]any { return &d.Config }, words: "a table"}},
}
