// SPDX-License-Identifier: Apache-2.0

// Package extraspecs is the table of Nova's extra specs of flavors and properties of images: which
// of them are honoured, which ask for nothing that could be missing, and which are refused because
// no server would have what they ask for.
//
//	flavor  ──▶ compute API: Check when an extra spec is set, and at each boot: 400
//	         └▶ driver:      Check before a guest is made: a fault
//	image   ──▶ driver:      CheckImage
//
// docs/extra-specs.md shows the table.
package extraspecs
