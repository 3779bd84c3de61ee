// SPDX-License-Identifier: Apache-2.0

// Package rehearsal starts a driver without an agent, for people who write one: it describes the
// plugin, or makes the passes that an agent would make on a new host, with a tree in memory instead
// of Placement's.
//
//	Describe   name, version, capabilities and sandbox; the schema of its configuration
//	Run        a pass, and with watch one after each change
//
// The process is started and called as that of an agent is, but nothing restarts it.
package rehearsal
