// SPDX-License-Identifier: Apache-2.0

// Package controlplane runs the services of the control plane, of which the configuration says what
// they are made with. The services do not know each other.
//
//	config.Config ──▶ Placement ───▶ placement.New ──┐ deny list, audit log, tracing,
//	              ├─▶ computeAPI ──▶ cells.NewAPI ───┤ database, socket
//	              └─▶ Cell ────────▶ cells.NewCell ──┴─▶ served until the context ends
//
// [ServePlacement], [ServeComputeAPI] and [ServeCell] are processes of one service. Each one limits
// its memory, opens what it needs in an order of its own, notifies systemd and feeds its watchdog,
// and closes everything when it returns.
//
// [RunStandalone] runs a whole site in the process of an agent: Placement, a compute API with a
// cell for the agent's host, and the libvirt daemon if none runs.
//
//	FindLibvirt ──▶ Libvirt.Configure ──▶ configuration ──▶ agent ──▶ driver
//	                                                    ├─▶ Placement ◀──┤
//	                                                    └─▶ compute API, cell0, cell1 ◀──┘
//
// All its databases are files in the state directory. Flavors are created if there are none.
package controlplane
