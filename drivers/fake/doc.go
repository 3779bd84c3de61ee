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
// It also shows what a reshape is. With shape = "numa" the same inventory is on children, and what guests use of it is moved
// there when the agent starts:
//
//	shape = "vgpu-children"                      # flat, vgpu-children, numa: each from any other
//	class_renames = { CUSTOM_SLICE = "VGPU" }    # what is found under the former name gets the new one
//	guests = { "6c6a..." = "gpu_1" }             # what a real driver knows: where a guest's device is
//
// Those shapes have names and no order. With shape_version they have numbers, and the driver plays one of its own releases, which takes
// a tree from any earlier shape to its own step by step:
//
//	shape_version = 4    # 1 flat, 2 VGPU on GPUs, 3 NUMA cells with the GPUs below them, 4 CUSTOM_FPGA is called FPGA
//
// And it answers whatever else a driver may be asked:
//
//	capabilities = { COMPUTE_NET_ATTACH_INTERFACE = true, COMPUTE_RESCUE_BFV = false }
//	guest_list = [{ uuid = "6c6a...", name = "web", resources = { "" = { VCPU = 2 }, gpu_1 = { VGPU = 1 } } }]
//	guests_error = "the daemon does not answer"    # what the agent must not take for "no guests"
//	deleted_nodes = ["cn7"]
//	health = "the daemon does not answer"          # what keeps it from working, so that it is degraded
//	warnings = { "gpu-clock" = "GPU 0 is slow" }   # what does not
//
// It makes guests too, when it is told to by the agent. They are files in its state directory, and survive the driver; whoever edits or
// removes one is a hypervisor's other administrator:
//
//	instances = { images = ["debian-13"], crash = ["web-7"], hold = "/run/hold-spawns" }    # {} is enough
//
// A reshape knows where their shares are, since it is the driver that put them on a GPU and a NUMA cell.
//
// It has faults on demand, in any call: it hangs, crashes, starts processes that outlive it, writes
// garbage, leaks, makes wrong trees and wrong reshapes. They show that the agent and its other
// drivers do not suffer. Without the key there are none:
//
//	[drivers.fake]
//	args = ["--start=noise,sleep=3s"]       # before the handshake
//	[drivers.fake.config.faults]
//	update = "storm crash"                  # in UpdateProviderTree, in this order
//	health = "hang"                         # other calls likewise; see compute-driver-fake --info
//	reshape = "lose"                        # a reshape that the agent must refuse
//
// All of this can be in a file that is followed while the driver runs, with what is to happen in the course of time:
//
//	scenario = "/etc/compute-agent/scenario.toml"
//
//	nodes = [{ name = "cn1", inventories = { VCPU = { total = 8 }, VGPU = { total = 4 } } }]
//	[[then]]                                       # a GPU is plugged in
//	after = "30s"
//	nodes = [{ name = "cn1", inventories = { VCPU = { total = 8 }, VGPU = { total = 8 } } }]
//	[[then]]                                       # another release of the driver, which the agent reshapes for when it starts
//	after = "60s"
//	shape = "vgpu-children"
//
// Read config.go for how a configuration is taken in, driver.go for how a tree is edited, shape.go
// and reshape.go for how it is reshaped, versions.go for how that is done in steps, instances.go
// for how guests are made so that it can be interrupted anywhere (hypervisor.go is what stands for
// the machine, devices.go which part of it a guest has), scenario.go for changes without a call,
// and abilities.go for the rest. faulty.go puts the faults around all of that: faults_process.go
// has those of any call, faults_answers.go those of answers, faults_reshape.go those of a reshape,
// start.go those before the handshake.
package fake
