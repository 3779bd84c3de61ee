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
//
// The five methods of [Driver] are all that a driver needs. A driver that also has the methods of
// one of these interfaces announces it as a capability, unless that is Renamer, and the agent calls
// them:
//
//	the process   Watcher, HealthChecker, Warner, Shutdowner
//	a node        CapabilityReporter, ProductNamer, HypervisorReporter, NodeChecker
//	reshapes      Renamer, LayoutVersioner, GuestLister
//	guests        InstanceManager; with it InstanceWatcher, InstanceRestorer, InstanceMover,
//	              SpawnChecker, ConsoleLogger, ConsoleOpener
//
// A driver whose inventory in use must move to other providers or classes describes that with
// [Moves]: see docs/drivers.md.
//
// The protocol is defined in plugins/proto. The Go API has no protobuf types: a tree is a
// [providertree.Tree].
package plugins
