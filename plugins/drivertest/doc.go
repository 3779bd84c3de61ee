// SPDX-License-Identifier: Apache-2.0

// Package drivertest is the conformance suite for virt drivers: it checks what an agent relies on,
// against a real plugin process.
//
//	func TestConformance(t *testing.T) {
//		drivertest.Run(t, drivertest.Options{Path: "./compute-driver-mine",
//			Config: json.RawMessage(`{"uri": "test:///default"}`)})
//	}
//
// The process is started as the agent starts it (in its sandbox, with handshake, mutual TLS and a
// minimal environment), and the suite uses the protocol only, so the driver can be written in any
// language. `compute-agent plugin test PATH` runs the same suite from the command line.
//
//	Options ─▶ Execute ─▶ a process ──▶ check ──▶ Result: passed
//	                        ▲    │                        failed: sent, came, rule, see
//	                        └────┘ a new process where    not run: why
//	                               a check needs it
//
// Placement takes no part: trees and allocations are made up. A reshape is tried from the tree that
// the driver makes with [Options.FormerPath] or [Options.Former]. Without either it is tried from
// the driver's own tree with all inventory on the root, as most drivers' trees once were.
//
// Instances are created only if the author allows it with [Options.Instances], since that affects a
// real hypervisor. They are small, have names that begin with drivertest-, and are removed when the
// check that created them ends, whatever its outcome.
//
// While it looks for processes that outlive a plugin, the process that runs the suite adopts
// orphans. Tests that start daemons of their own must not run beside it in the same process.
//
// The package imports the agent's part that starts plugin processes, so drivers import it in tests
// only.
package drivertest
