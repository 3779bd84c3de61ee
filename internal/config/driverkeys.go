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

const driversDoc = "One table per driver. A driver without a table is not started; the agent runs what is\nnamed here and nothing else."

// maxDriverName bounds a driver's name, which becomes part of a file name and
// of variables.
const maxDriverName = 40

// driverName is what a driver may be called. Underscores are out because the
// variables of "a-b" and "a_b" would be the same.
var driverName = regexp.MustCompile(`^[a-z][a-z0-9]*(-[a-z0-9]+)*$`)

// span is a duration of a driver's own that is "0s" unless somebody wrote it.
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

// driverKeys declares the keys of [drivers.NAME]. SIGHUP applies all of them:
// the driver's process is configured anew or, where it must be, replaced.
var driverKeys = []key[Driver]{
	{"enabled", live, "Whether the agent starts this driver.",
		toggle[Driver]{func(d *Driver) *bool { return &d.Enabled }, true}},
	{"path", live, "The plugin's executable. Empty means compute-driver-NAME in the directory of [plugins], see there.",
		text[Driver]{at: func(d *Driver) *string { return &d.Path }, words: "an absolute path", check: absolutePath}},
	{"sha256", live, "SHA-256 of the executable; a file with another one is not started. Empty means any.",
		text[Driver]{at: func(d *Driver) *string { return &d.SHA256 }, words: "64 lower-case hexadecimal digits, as sha256sum prints them", check: digest}},
	{"args", live, "Arguments of the plugin's process.",
		list[Driver]{at: func(d *Driver) *[]string { return &d.Args }, words: "an array of strings"}},
	{"env", live, "Environment of the plugin's process, besides the few variables that every plugin gets.",
		strs[Driver]{at: func(d *Driver) *map[string]string { return &d.Env }, words: "a table of strings such as {LIBVIRT_DEBUG = \"1\"}", check: variableName}},
	{"unavailable_grace", live, "How long the driver may be gone (its process is down, or does not answer, or the driver says\nthat it is not ready) until nothing new is scheduled to its nodes: their resource\nproviders get the trait COMPUTE_STATUS_DISABLED, until the driver answers again. Guests\nrun on. It counts from when the driver was first missed after its last good answer.",
		duration[Driver]{at: func(d *Driver) *time.Duration { return &d.UnavailableGrace }, def: 10 * time.Minute, min: 100 * time.Millisecond, max: 7 * 24 * time.Hour, zero: "never"}},
	{"timeouts.start", live, "How long the plugin may take from its start to its handshake.",
		span(func(d *Driver) *time.Duration { return &d.Timeouts.Start }, 100*time.Millisecond, 10*time.Minute, "as plugins.handshake_timeout")},
	{"timeouts.configure", live, "How long the driver may take to accept its configuration.",
		span(func(d *Driver) *time.Duration { return &d.Timeouts.Configure }, 100*time.Millisecond, time.Hour, "as plugins.call_timeout")},
	{"timeouts.nodes", live, "How long the driver may take to name its nodes.",
		span(func(d *Driver) *time.Duration { return &d.Timeouts.Nodes }, 100*time.Millisecond, time.Hour, "as plugins.call_timeout")},
	{"timeouts.update", live, "How long the driver may take to say what a node gives, or which guests it has.",
		span(func(d *Driver) *time.Duration { return &d.Timeouts.Update }, 100*time.Millisecond, time.Hour, "as plugins.call_timeout")},
	{"timeouts.health", live, "How long the plugin may take to answer a health check.",
		span(func(d *Driver) *time.Duration { return &d.Timeouts.Health }, 10*time.Millisecond, time.Hour, "as plugins.health_timeout")},
	{"timeouts.stop", live, "How long the plugin may take to end by itself before it is killed.",
		span(func(d *Driver) *time.Duration { return &d.Timeouts.Stop }, 10*time.Millisecond, 10*time.Minute, "as plugins.shutdown_timeout")},
	{"timeouts.instance", live, "How long the driver may take to start, end, or switch an instance, if it can.",
		span(func(d *Driver) *time.Duration { return &d.Timeouts.Instance }, 100*time.Millisecond, 24*time.Hour, "10 minutes")},
	{"restart.health_interval", live, "Time between two health checks of the plugin.",
		span(func(d *Driver) *time.Duration { return &d.Restart.HealthInterval }, 10*time.Millisecond, time.Hour, "as plugins.health_interval")},
	{"restart.health_misses", live, "Health checks, or calls, in a row without an answer after which the process is killed and\nstarted again; 0 is as plugins.health_misses.",
		number[Driver]{at: func(d *Driver) *int { return &d.Restart.HealthMisses }, max: 100}},
	{"restart.backoff_min", live, "First pause before the crashed plugin is started again; it doubles with every crash.",
		span(func(d *Driver) *time.Duration { return &d.Restart.BackoffMin }, 10*time.Millisecond, time.Hour, "as plugins.backoff_min")},
	{"restart.backoff_max", live, "Longest pause before the crashed plugin is started again.",
		span(func(d *Driver) *time.Duration { return &d.Restart.BackoffMax }, 10*time.Millisecond, 24*time.Hour, "as plugins.backoff_max")},
	{"restart.crash_limit", live, "Crashes within crash_window after which the plugin is left alone for the quarantine; 0 is as\nplugins.crash_limit.",
		number[Driver]{at: func(d *Driver) *int { return &d.Restart.CrashLimit }, max: 1000}},
	{"restart.crash_window", live, "Time over which crashes are counted; a plugin that ran so long has a clean record.",
		span(func(d *Driver) *time.Duration { return &d.Restart.CrashWindow }, time.Second, 24*time.Hour, "as plugins.crash_window")},
	{"restart.quarantine", live, "How long the plugin that crashed again and again is left alone.",
		span(func(d *Driver) *time.Duration { return &d.Restart.Quarantine }, time.Second, 24*time.Hour, "as plugins.quarantine")},
	{"config", live, "Configuration of the driver itself; the driver's documentation names its keys.",
		free[Driver]{at: func(d *Driver) *map[string]any { return &d.Config }, words: "a table"}},
}
