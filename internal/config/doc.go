// SPDX-License-Identifier: Apache-2.0

// Package config reads the configuration of compute-agent: one TOML file, the
// files of conf.d beside it, the environment, and the few command-line flags
// that stand for a key.
//
//	defaults ── /etc/compute-agent/compute-agent.toml ── conf.d/*.toml, sorted ── COMPUTE_AGENT_* ── flags
//	   weakest                                                                              strongest
//
// Every key is declared once, in the tables of keys.go and driverkeys.go: its
// name, its default, its bounds, what it means and whether SIGHUP applies a
// change. Decoding, the environment twins (COMPUTE_AGENT_<SECTION>_<KEY>), the
// commented file that Defaults writes, the provenance that Source tells and
// the comparison that Diff makes all follow from those tables.
//
// Nothing is guessed and nothing is ignored: an unknown key, section or
// COMPUTE_AGENT_ variable, a value of the wrong type or out of bounds is a
// Problem that names the file and line, shows the line and says what to write
// instead. Load reports all of them at once.
//
// Secrets are never values. Keys that end in _file hold the path of a file, or
// the bare name of a systemd credential, which is looked for in
// $CREDENTIALS_DIRECTORY; ReadSecret reads it when it is needed.
package config
