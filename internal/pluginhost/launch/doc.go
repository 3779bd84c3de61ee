// SPDX-License-Identifier: Apache-2.0

// Package launch is how a driver's process comes to be: it finds the executables of drivers, opens
// one only if it is trusted, and restricts what the process, and what it starts, can do on this
// machine.
//
//	Installed     the drivers in plugin directories, by name
//	Open          checks who can have changed the file, or a directory above it, and its digest
//	Identify      has the file been replaced?
//	Sandbox       what a configuration opens to the process: paths, modes
//	Kernel        what this machine can make a sandbox of
//	Confinement   the sandbox of one process, made of both: Landlock's rules, a filter of calls
//
// What is checked is what is executed: it stays open. The process enters its sandbox by itself. It
// is this program again, which enters the sandbox before any code of its own and then executes the
// plugin:
//
//	agent ─ Confine, Start ─▶ this program, as protocol.SandboxArg ─ enter, execute ─▶ plugin
//
// So every program that imports this package can be started like that, and then runs nothing else.
package launch
