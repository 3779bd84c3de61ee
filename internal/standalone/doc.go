// SPDX-License-Identifier: Apache-2.0

// Package standalone runs a whole site in the process of an agent: Placement, a compute API with a
// cell for the agent's host, and the libvirt daemon if none runs.
//
//	FindLibvirt ──▶ Libvirt.Configure ──▶ configuration ──▶ Run ──▶ agent ──▶ driver
//	                                                         ├─▶ Placement ◀──┤
//	                                                         └─▶ compute API, cell0, cell1 ◀──┘
//
// All databases are files in the state directory. Flavors are created if there are none.
package standalone
