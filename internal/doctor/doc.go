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
// the command. As root it reads their files with the rights of that user, whom it has the kernel
// judge, and follows no symbolic link that another user than root can have made.
package doctor
