// SPDX-License-Identifier: Apache-2.0

// Package chaos is a virt driver that does what drivers should not: it hangs, crashes, starts processes that outlive it,
// writes garbage, leaks, starts slowly and makes wrong trees, each when and where its configuration says so. It is for
// showing that the agent and its other drivers do not suffer by it. Without orders it behaves: one node, cn1, with 8 VCPU, on which it
// makes instances as the fake driver does.
//
//	[drivers.chaos]
//	args = ["--start=noise,sleep=3s"]    # before the handshake
//
//	[drivers.chaos.config]
//	update = "storm crash"               # in UpdateProviderTree: first one thing, then the other
//	health = "hang"                      # in Health; configure, nodes, watch and shutdown likewise
//	list = "twice"                       # in what is about instances; spawn, destroy, power and events likewise
//
// The things that it does are called deeds, see deeds.go, trees.go and instances.go for all of them; `compute-driver-chaos --info` lists
// them in the schema of the configuration. What it does before the handshake is in start.go.
//
// It is built on the same SDK as other drivers, so what the SDK keeps from happening (a stray print in the handshake) it
// has to go out of its way to do.
package chaos
