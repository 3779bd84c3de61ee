// SPDX-License-Identifier: Apache-2.0

// Package drivertest is the conformance suite for virt drivers: what an agent relies on, put to a real plugin process.
//
//	func TestConformance(t *testing.T) {
//		drivertest.Run(t, drivertest.Options{Path: "./compute-driver-mine", Config: json.RawMessage(`{"uri": "test:///default"}`)})
//	}
//
// The process is started as the agent starts it (handshake, mutual TLS, a bare environment), and nothing but the protocol is spoken to it,
// so the language that it is written in does not matter. `compute-agent plugin test PATH` is the same for those who write no Go.
//
//	Options ─▶ Execute ─▶ a process ──▶ check ──▶ Result: passed
//	                        ▲    │                        failed: sent, came, rule, where to look
//	                        └────┘ a fresh one where      does not apply: why
//	                               a check needs it
//
// Placement takes no part: trees and allocations are made up. A reshape is tried when there is one to try: either from the tree that the
// driver makes with [Options.Former], or, without that, from its own tree with all inventory put on the root, as most drivers' trees once
// were.
//
// Instances are made only if the author says so with [Options.Instances]: on a real hypervisor that is not harmless. They are small, have
// names that begin with drivertest-, and are removed when the check that made them ends, whatever came of it.
//
// The package imports the agent's part that starts plugin processes (plugins/host), which is why drivers import it in tests only. Nothing of
// the agent beyond that comes along.
package drivertest
