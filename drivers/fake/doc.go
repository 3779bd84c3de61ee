// SPDX-License-Identifier: Apache-2.0

// Package fake is a virt driver without a hypervisor: the nodes, their inventories, traits and nested providers are what
// its configuration says. It is for trying things out, for tests at any size, and for reading: it does all that a real
// driver must do, and the only thing missing is the machine.
//
//	[drivers.fake.config]
//	nodes = [
//	  { name = "cn1",
//	    inventories = { VCPU = { total = 8, allocation_ratio = 4.0 }, MEMORY_MB = { total = 16384, reserved = 512 } },
//	    traits = ["HW_CPU_X86_AVX2"],
//	    children = [
//	      { name = "numa_0", traits = ["HW_NUMA_ROOT"], inventories = { VGPU = { total = 4 } } },
//	    ] },
//	]
//
// Read config.go for how a configuration is taken in, and driver.go for how a tree is edited.
package fake
