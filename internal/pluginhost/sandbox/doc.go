// SPDX-License-Identifier: Apache-2.0

// Package sandbox restricts what a driver's process, and what it starts, can do on this machine.
//
//	Sandbox       what a configuration opens to the process: paths, modes
//	Kernel        what this machine can make a sandbox of
//	Confinement   the sandbox of one process, made of both: Landlock's rules, a filter of calls
//
// The process enters it by itself. It is this program again, which enters the sandbox before any
// code of its own and then executes the plugin:
//
//	agent ─ Confine, Start ─▶ this program, as protocol.SandboxArg ─ enter, execute ─▶ plugin
//
// So every program that imports this package can be started like that, and then runs nothing else.
package sandbox
