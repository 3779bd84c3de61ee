// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/plugins/internal/protocol"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
)

// Warning is something that a driver reports beside its health: it works, and an operator should
// know.
type Warning struct {
	Name string `json:"name"`
	Text string `json:"text"`
	// Since is when it was reported first. It stays if another process of the driver reports the
	// same.
	Since time.Time `json:"since"`
}

// unusableWarnings is the warning of ours that says what is wrong with a driver's.
const unusableWarnings = "unusable-warnings"

// checkWarnings turns what came with an answer to Health into a list that is ordered by name and
// printable. What cannot be used is left out, and one warning more says so: a mistake in a warning
// is no reason to call the driver ill, nor to lose the others.
//
// Cost: O(n log n) for the n up to [protocol.MaxWarnings] that are looked at.
func checkWarnings(msgs []*driverv1.Warning, capabilities []string) []plugins.Warning {
	d := &defects{}
	switch n := len(msgs); {
	case n > 0 && !slices.Contains(capabilities, protocol.CapabilityWarnings):
		d.add("there are %d, and the plugin does not announce the capability %q", n, protocol.CapabilityWarnings)
		msgs = nil
	case n > protocol.MaxWarnings:
		d.add("there are %d, at most %d are allowed", n, protocol.MaxWarnings)
		msgs = msgs[:protocol.MaxWarnings]
	}
	out := make([]plugins.Warning, 0, len(msgs)+1)
	seen := make(map[string]bool, len(msgs))
	for i, m := range msgs {
		name := m.GetName()
		switch {
		case !protocol.IsWarningName(name):
			d.add("warning %d: its name %q has not 1 to %d of a-z, 0-9, -, _, . and :, with a letter or a digit first", i, clip(name, 100), protocol.MaxWarningName)
			continue
		case seen[name]:
			d.add("warning %d: %s is there twice", i, name)
			continue
		case strings.TrimSpace(m.GetText()) == "":
			d.add("warning %d: %s has no text", i, name)
			continue
		}
		seen[name] = true
		out = append(out, plugins.Warning{Name: name, Text: words(m.GetText(), maxWarningBytes)})
	}
	if err := d.err(); err != nil && !seen[unusableWarnings] {
		out = append(out, plugins.Warning{Name: unusableWarnings, Text: clip("Some warnings of the driver cannot be used, which is a fault of the driver: "+err.Error(), maxWarningBytes)})
	}
	slices.SortFunc(out, func(a, b plugins.Warning) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// maxWarningBytes is room for the text of a warning in most scripts; the bound of the protocol is
// one of characters.
const maxWarningBytes = 2 * protocol.MaxWarningText

// warnings are those that are logged to hold, by name. They outlive the process, so that a new
// process that reports the same is not logged again.
type warnings map[string]Warning

// observe takes all that a process reports at a moment. It returns them with the time since when
// they hold, and what began and ended since the last time, ordered by name.
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

// recordWarnings takes note of what the serving process warns of. Each warning is a line of log
// when it begins and another when it is over.
func (p *Plugin) recordWarnings(reported []plugins.Warning) {
	now := time.Now()
	p.mu.Lock()
	hold, begun, over := p.warnings.observe(now, reported)
	p.status.Warnings = hold
	p.mu.Unlock()
	for _, w := range begun {
		p.log.Warn().Str("warning", w.Name).Msg("The driver warns: " + strings.TrimRight(w.Text, ".") + ". This is not a failure. It is logged once.")
	}
	for _, w := range over {
		p.log.Info().Str("warning", w.Name).Stringer("lasted", now.Sub(w.Since).Round(time.Second)).Msg(fmt.Sprintf("The driver no longer warns of %s.", w.Name))
	}
}
