// SPDX-License-Identifier: Apache-2.0

// Package plugins is all that the author of a virt driver imports.
//
// A virt driver says what a machine can give: it fills in the provider tree of a compute node. It may also make guests there. It runs in a process of
// its own, so that it can crash, hang or link whatever it likes without harm to the agent. The author writes one type
// with the methods of [Driver] and one line of main:
//
//	func main() { plugins.Serve(mydriver.New()) }
//
// [Serve] does everything else: the handshake and the encrypted connection with the agent, logging, liveness, draining
// at the end, leaving when the agent dies.
//
//	agent                                   plugin process
//	plugins/host ── gRPC, mTLS, unix ──▶  Serve ──▶ Driver
//	                                        ├─ Watcher            (optional)
//	                                        ├─ HealthChecker      (optional)
//	                                        ├─ Renamer            (optional)
//	                                        ├─ Shaper             (optional)
//	                                        ├─ CapabilityReporter (optional)
//	                                        ├─ GuestLister        (optional)
//	                                        ├─ NodeChecker        (optional)
//	                                        ├─ InstanceManager    (optional)
//	                                        ├─ InstanceWatcher    (optional)
//	                                        └─ Shutdowner         (optional)
//
// A driver whose inventory in use must move to other providers or classes describes that with [Moves]: see docs/drivers.md.
//
// What goes over the wire is defined in plugins/proto; neither side shows protobuf to its users: a tree is a
// [providertree.Tree] here and there.
package plugins
