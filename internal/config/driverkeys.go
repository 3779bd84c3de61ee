// SPDX-License-Identifier: Apache-2.0

package config

import "regexp"

// driversSection is the name of the table of the drivers' tables.
const driversSection = "drivers"

const driversDoc = "One table per driver. A driver without a table is not started; the agent runs what is\nnamed here and nothing else."

// maxDriverName bounds a driver's name, which becomes part of a file name and
// of variables.
const maxDriverName = 40

// driverName is what a driver may be called. Underscores are out because the
// variables of "a-b" and "a_b" would be the same.
var driverName = regexp.MustCompile(`^[a-z][a-z0-9]*(-[a-z0-9]+)*$`)

// driverKeys declares the keys of [drivers.NAME]. SIGHUP applies all of them:
// the driver's process is configured anew or, where it must be, replaced.
var driverKeys = []key[Driver]{
	{"enabled", live, "Whether the agent starts this driver.",
		toggle[Driver]{func(d *Driver) *bool { return &d.Enabled }, true}},
	{"path", live, "The plugin's executable. Empty means compute-driver-NAME in the directory of [plugins].",
		text[Driver]{at: func(d *Driver) *string { return &d.Path }, words: "an absolute path", check: absolutePath}},
	{"sha256", live, "SHA-256 of the executable; a file with another one is not started. Empty means any.",
		text[Driver]{at: func(d *Driver) *string { return &d.SHA256 }, words: "64 lower-case hexadecimal digits, as sha256sum prints them", check: digest}},
	{"args", live, "Arguments of the plugin's process.",
		list[Driver]{at: func(d *Driver) *[]string { return &d.Args }, words: "an array of strings"}},
	{"env", live, "Environment of the plugin's process, besides the few variables that every plugin gets.",
		strs[Driver]{at: func(d *Driver) *map[string]string { return &d.Env }, words: "a table of strings such as {LIBVIRT_DEBUG = \"1\"}", check: variableName}},
	{"config", live, "Configuration of the driver itself; the driver's documentation names its keys.",
		free[Driver]{at: func(d *Driver) *map[string]any { return &d.Config }, words: "a table"}},
}
