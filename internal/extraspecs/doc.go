// SPDX-License-Identifier: Apache-2.0

// Package extraspecs is the table of Nova's extra specs of flavors and properties of images: which
// of them are honoured, which are harmless because they request nothing that a server could lack,
// and which are refused because no server can have what they request. It reads the hardware that
// the honoured ones request.
//
//	flavor         ──▶ compute API: Check when an extra spec is set: 400
//	               ──▶ scheduler:   Hardware at each boot: 400, and the traits of hosts
//	flavor, image  ──▶ driver:      Hardware before a guest is made: a fault
//
// It also has the names of PCI devices in flavors ([Aliases]), and how resource classes and traits
// are made of names in configurations, as Nova makes them.
//
// docs/extra-specs.md shows the table.
package extraspecs
