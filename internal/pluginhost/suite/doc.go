// SPDX-License-Identifier: Apache-2.0

// Package suite runs the conformance suite for virt drivers in a process of its own, the program
// compute-driver-test, so that the agent does not link the suite (plugins/drivertest).
//
//	compute-agent plugin test              compute-driver-test
//	Start     ◀── the checks ───────────── drivertest.Serve
//	Run       ─── Options ───────────────▶ drivertest.Execute ──▶ the plugin's processes
//	          ◀── Started, Result..., End
//	Close     ─── end of input ──────────▶ ends
//
// Both directions are JSON documents. The input stays open while the suite runs: its end stops the
// suite, also when the process at the other end is killed.
package suite
