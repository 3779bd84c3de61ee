// SPDX-License-Identifier: Apache-2.0

package driverclient

import (
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/plugins"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
)

// unusableWarnings is the name of the agent's own warning about invalid ones.
const unusableWarnings = "unusable-warnings"

// checkWarnings returns the valid warnings of a response to Health, sorted by name and printable.
// One additional warning describes the invalid ones: they do not make the driver unhealthy, nor
// discard the others.
//
// Cost: O(n log n) for the n up to [protocol.MaxWarnings] that are looked at.
func checkWarnings(msgs []*driverv1.Warning, capabilities []string) []plugins.Warning {
	d := &defects{}
	switch n := len(msgs); {
	case n > 0 && !slices.Contains(capabilities, protocol.CapabilityWarnings):
		d.add("%d were reported, and the plugin does not announce the capability %q", n, protocol.CapabilityWarnings)
		msgs = nil
	case n > protocol.MaxWarnings:
		d.add("%d were reported, at most %d are allowed", n, protocol.MaxWarnings)
		msgs = msgs[:protocol.MaxWarnings]
	}
	out := make([]plugins.Warning, 0, len(msgs)+1)
	seen := make(map[string]bool, len(msgs))
	for i, m := range msgs {
		name := m.GetName()
		switch {
		case !protocol.IsWarningName(name):
			d.add("warning %d: its name %q is not 1 to %d of a-z, 0-9, -, _, . and :, starting with a "+
				"letter or a digit", i, clip(name, 100), protocol.MaxWarningName)
			continue
		case seen[name]:
			d.add("warning %d: %s is listed twice", i, name)
			continue
		case strings.TrimSpace(m.GetText()) == "":
			d.add("warning %d: %s has no text", i, name)
			continue
		}
		seen[name] = true
		out = append(out, plugins.Warning{Name: name, Text: printable(m.GetText(), maxWarningBytes)})
	}
	if err := d.err(); err != nil && !seen[unusableWarnings] {
		out = append(
			out,
			plugins.Warning{Name: unusableWarnings,
				Text: clip("Some warnings of the driver are invalid, which is a fault of the driver: "+
					err.Error(), maxWarningBytes)},
		)
	}
	slices.SortFunc(out, func(a, b plugins.Warning) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// maxWarningBytes is enough for the text of a warning in most scripts; the protocol bounds
// characters.
const maxWarningBytes = 2 * protocol.MaxWarningText
