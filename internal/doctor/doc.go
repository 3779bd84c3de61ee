// SPDX-License-Identifier: Apache-2.0

// Package doctor checks the host that an agent runs on, and suggests a command for each problem.
//
//	Env (files below a root, user, clock, HTTP, sockets) ─▶ Checks, concurrently, with a deadline
//	  ─▶ Results in a fixed order: ok · skipped · warning · error; found, why it matters, command
//	  ─▶ text for people, JSON for programs, an exit code
//
// It changes nothing, starts nothing and needs no privileges. A check without the permission it
// needs is skipped, and its result says so. All access to the machine goes through Env, so that
// tests can build a host with one fault.
//
// Permissions are checked for the user that the agent or the service runs as, not for the user of
// the command. A command of root reads their files with that user's rights, so that the kernel
// decides, and follows no symbolic link that a user other than root can have made.
package doctor
