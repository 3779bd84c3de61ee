// SPDX-License-Identifier: Apache-2.0

// Package fake is a virt driver without a hypervisor: its configuration defines nodes, inventories,
// traits and nested providers. It is for experiments, for tests of any size, and as an example: it
// does all that a real driver must do, without a machine.
//
//	[drivers.fake.config]
//	nodes = [
//	  { name = "cn1",
//	    inventories = {
//	      VCPU = { total = 8, allocation_ratio = 4.0 },
//	      MEMORY_MB = { total = 16384, reserved = 512 },
//	    },
//	    traits = ["HW_CPU_X86_AVX2"],
//	    children = [
//	      { name = "numa_0", traits = ["HW_NUMA_ROOT"], inventories = { VGPU = { total = 4 } } },
//	    ] },
//	]
//
// It also shows reshapes. With layout = "numa" the same inventory is on children, and the
// allocations of guests move there when the agent starts:
//
//	layout = "vgpu-children"                     # flat, vgpu-children, numa: each from any other
//	class_renames = { CUSTOM_SLICE = "VGPU" }    # inventory with the former name gets the new one
//	guests = { "6c6a..." = "gpu_1" }             # where a guest's device is
//
// These layouts have names and no order. With layout_version they have versions, and the driver
// acts as one of its own releases, which migrates a tree from any former layout to its own:
//
//	layout_version = 4    # 1 flat, 2 VGPU on GPUs, 3 NUMA cells with the GPUs below them,
//	                      # 4 CUSTOM_FPGA renamed to FPGA
//
// It has all other capabilities of a driver:
//
//	capabilities = { COMPUTE_NET_ATTACH_INTERFACE = true, COMPUTE_RESCUE_BFV = false }
//	product_names = { gpu_0 = "Acme Corporation Accelerator 9000" }   # which `tree` shows
//	guest_list = [{ uuid = "6c6a...", name = "web",
//	                resources = { "" = { VCPU = 2 }, gpu_1 = { VGPU = 1 } } }]
//	guests_error = "the daemon does not respond"   # which the agent must not take for "no guests"
//	deleted_nodes = ["cn7"]
//	health = "the daemon does not respond"         # keeps it from working, so that it is degraded
//	warnings = { "gpu-clock" = "GPU 0 is slow" }   # does not
//
// It also creates instances for the agent. They are files in its state directory, and outlive the
// driver. Edit or remove one to act as another administrator of a hypervisor:
//
//	# {} is enough
//	instances = { images = ["debian-13"], crash = ["web-7"], hold = "/run/hold-spawns" }
//
// A reshape knows where their shares are, because the driver placed them on a GPU and a NUMA cell.
//
// It has faults on demand, in any call: it hangs, crashes, starts processes that outlive it, writes
// garbage, leaks, makes wrong trees and wrong reshapes. They show that the agent and its other
// drivers are not affected. Without the key there are none:
//
//	[drivers.fake]
//	args = ["--start=noise,sleep=3s"]       # before the handshake
//	[drivers.fake.config.faults]
//	update = "storm crash"                  # in UpdateProviderTree, in this order
//	health = "hang"                         # other calls likewise; see compute-driver-fake --info
//	reshape = "lose"                        # a reshape that the agent must reject
//
// All of this can be in a file that the driver follows while it runs, with a schedule of changes:
//
//	scenario = "/etc/compute-agent/scenario.toml"
//
//	nodes = [{ name = "cn1", inventories = { VCPU = { total = 8 }, VGPU = { total = 4 } } }]
//	[[then]]                                       # a GPU is plugged in
//	after = "30s"
//	nodes = [{ name = "cn1", inventories = { VCPU = { total = 8 }, VGPU = { total = 8 } } }]
//	[[then]]                                       # another release: reshape at the next start
//	after = "60s"
//	layout = "vgpu-children"
//
// Files: config.go reads the configuration, driver.go edits a tree, layouts.go and reshape.go
// reshape it, versions.go migrates layouts, instances.go creates instances so that it can be
// interrupted anywhere (hypervisor.go is the machine, devices.go the devices of a guest),
// scenario.go follows changes with time, guests.go lists guests, and node_info.go has the other
// capabilities. faulty.go puts the faults of package faults around every call.
package fake
