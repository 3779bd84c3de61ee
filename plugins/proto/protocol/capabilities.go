// SPDX-License-Identifier: Apache-2.0

package protocol

import "slices"

// CapabilityShapes is the name of CapabilityLayouts in releases up to 0.2.0. Plugins announce both
// names, because agents of these releases know only this one; agents accept either, because plugins
// of these releases announce only this one.
//
// The messages keep shape_version and from_shape: names of fields are not on the wire, but in the
// code of plugins that use the generated types.
//
// Deprecated: use CapabilityLayouts.
const CapabilityShapes = "shapes"

// AnnouncedCapabilities returns what a plugin with these capabilities announces: them, and the
// former names of those that have one.
func AnnouncedCapabilities(capabilities []string) []string {
	out := slices.Clone(capabilities)
	if slices.Contains(capabilities, CapabilityLayouts) {
		out = append(out, CapabilityShapes)
	}
	return out
}

// CurrentCapabilities returns what a plugin announced, with each capability under its current name
// only.
func CurrentCapabilities(announced []string) []string {
	out := slices.Clone(announced)
	if i := slices.Index(out, CapabilityShapes); i >= 0 && !slices.Contains(out, CapabilityLayouts) {
		out[i] = CapabilityLayouts
	}
	return slices.DeleteFunc(out, func(name string) bool { return name == CapabilityShapes })
}
