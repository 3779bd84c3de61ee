// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/plugins"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
)

// Warning is a condition that a driver reports although it works.
type Warning struct {
	Name string `json:"name"`
	Text string `json:"text"`
	// Since is when it was first reported. It stays if another process of the driver reports the
	// same.
	Since time.Time `json:"since"`
}

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

// warnings are those that were logged and hold, by name. They outlive the process, so that the same
// warnings of a new process are not logged again.
type warnings map[string]Warning

// observe takes all current warnings of a process. It returns them with the time since when they
// hold, and those that began and ended since the last call, sorted by name.
func (w *warnings) observe(now time.Time, reported []plugins.Warning) (hold, begun, over []Warning) {
	next := make(warnings, len(reported))
	for _, t := range reported {
		is := Warning{Name: t.Name, Text: t.Text, Since: now}
		if was, known := (*w)[t.Name]; known {
			is.Since = was.Since
		} else {
			begun = append(begun, is)
		}
		next[t.Name] = is
		hold = append(hold, is)
	}
	for name, was := range *w {
		if _, still := next[name]; !still {
			over = append(over, was)
		}
	}
	slices.SortFunc(over, func(a, b Warning) int { return strings.Compare(a.Name, b.Name) })
	*w = next
	return hold, begun, over
}

// recordWarnings records the current warnings. Each is logged when it begins and when it ends.
func (p *Plugin) recordWarnings(reported []plugins.Warning) {
	now := time.Now()
	p.mu.Lock()
	hold, begun, over := p.warnings.observe(now, reported)
	p.status.Warnings = hold
	p.mu.Unlock()
	for _, w := range begun {
		p.log.Warn().Str("warning", w.Name).
			Msg("The driver warns: " + strings.TrimRight(w.Text, ".") + ". This is not a failure.")
	}
	for _, w := range over {
		p.log.Info().Str("warning", w.Name).Stringer("lasted", now.Sub(w.Since).Round(time.Second)).
			Msg(fmt.Sprintf("The driver's warning %s has ended.", w.Name))
	}
}
