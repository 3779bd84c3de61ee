// SPDX-License-Identifier: Apache-2.0

// Package plugins is the SDK for virt drivers: all that a driver's author imports.
//
// A virt driver reports the resources of a machine: it fills in the provider tree of a compute
// node. It can also create guests there. It runs in its own process, so that a crash, a hang or its
// libraries do not affect the agent. The author writes one type with the methods of [Driver] and
// one line of main:
//
//	func main() { plugins.Serve(mydriver.New()) }
//
// [Serve] does everything else: the handshake, the encrypted connection with the agent, logging,
// health checks, draining at the end, and exiting when the agent dies.
//
//	agent                                   plugin process
//	pluginhost   ── gRPC, mTLS, unix ──▶  Serve ──▶ Driver
//	                                        ├─ Watcher            (optional)
//	                                        ├─ HealthChecker      (optional)
//	                                        ├─ Warner             (optional)
//	                                        ├─ Renamer            (optional)
//	                                        ├─ LayoutVersioner    (optional)
//	                                        ├─ CapabilityReporter (optional)
//	                                        ├─ ProductNamer       (optional)
//	                                        ├─ HypervisorReporter (optional)
//	                                        ├─ GuestLister        (optional)
//	                                        ├─ NodeChecker        (optional)
//	                                        ├─ InstanceManager    (optional)
//	                                        ├─ InstanceWatcher    (optional)
//	                                        ├─ InstanceRestorer   (optional)
//	                                        ├─ InstanceMover      (optional)
//	                                        ├─ ConsoleLogger      (optional)
//	                                        ├─ SpawnChecker       (optional)
//	                                        ├─ ConsoleOpener      (optional)
//	                                        └─ Shutdowner         (optional)
//
// A driver whose inventory in use must move to other providers or classes describes that with
// [Moves]: see docs/drivers.md.
//
// The protocol is defined in plugins/proto. The Go API has no protobuf types: a tree is a
// [providertree.Tree].
package plugins
