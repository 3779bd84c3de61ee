// SPDX-License-Identifier: Apache-2.0

// Package config reads the configuration of compute-agent: a TOML file, the files of conf.d next to
// it, the environment, and the command-line flags that set keys.
//
//	defaults                                        weakest
//	/etc/compute-agent/compute-agent.toml
//	conf.d/*.toml, sorted
//	COMPUTE_AGENT_*
//	flags                                           strongest
//
// Every key is declared once, in keys.toml: name, default, limits, documentation, and whether a
// reload applies it. Its value is a field of the struct of its section. Decoding, variables
// (COMPUTE_AGENT_<SECTION>_<KEY>), credentials, Defaults, Source and Diff follow from that file.
//
// An unknown key, section or COMPUTE_AGENT_ variable, or an invalid value, is a [Problem] with
// file, line and fix. Load reports all of them at once.
//
// Secrets are never values. Keys that end in _file hold the path of a file, or the name of a
// systemd credential in $CREDENTIALS_DIRECTORY; ReadSecret reads it when it is needed.
package config
