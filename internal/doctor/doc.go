// SPDX-License-Identifier: Apache-2.0

// Package doctor examines the host that an agent runs on, or fails to run on,
// and names for everything that is wrong the command that mends it.
//
//	Env (files below a root, user, clock, HTTP, sockets) ─▶ Checks, at the same time, each with a deadline
//	  ─▶ Results in a fixed order: ok · skipped · warning · error; found, why it matters, the command
//	  ─▶ text for people, JSON for programs, an exit status
//
// It only looks: it changes nothing, starts nothing and needs no privilege.
// What it may not look at it skips and says so. All that it sees of the machine
// comes through Env, so that tests can build a host that is broken in one way.
//
// The doctor judges for the user that the agent runs as, who need not be the
// one who asks.
package doctor
