// SPDX-License-Identifier: Apache-2.0

// Package trial tries a driver without an agent, for people who write one.
//
//	Describe   name, version, capabilities and sandbox; the schema of its configuration
//	Run        a pass, and with watch one after each change: those that an agent would make on a
//	           new host, with a tree in memory instead of Placement's
//
// The process is started and called as that of an agent is, but nothing restarts it.
//
// The conformance suite for virt drivers runs in a process of its own, the program
// compute-driver-test, so that the agent does not link it (plugins/drivertest):
//
//	compute-agent plugin test              compute-driver-test
//	StartSuite  ◀── the checks ─────────── drivertest.Serve
//	Process.Run ─── SuiteOptions ────────▶ drivertest.Execute ──▶ the plugin's processes
//	            ◀── Started, Result..., End
//	Close       ─── end of input ────────▶ ends
//
// Both directions are JSON documents. The input stays open while the suite runs: its end stops the
// suite, also when the process at the other end is killed.
package trial
