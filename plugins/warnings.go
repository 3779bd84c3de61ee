// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"fmt"
	"slices"
	"strings"

	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
)

// Warner is implemented by drivers that report conditions that do not keep them from working: two
// sources that disagree about the machine, a setting without effect. What keeps a driver from
// working is for [HealthChecker].
type Warner interface {
	// Warnings returns all current warnings, in any order. It is called with every health check, at
	// any time, also before Configure and concurrently with any other call, and must not block: it
	// returns what the driver found earlier, for example in an UpdateProviderTree. The list is read
	// before the call returns and not kept.
	//
	// The agent logs each when it begins and when it ends, by its name, and shows all of them in
	// its status. It does not act on them.
	Warnings() []Warning
}

// Warning is one that a [Warner] reports.
type Warning struct {
	// Name identifies the warning, and stays the same as long as it holds: 1 to 80 of a-z, 0-9,
	// "-", "_", "." and ":", starting with a letter or a digit. It can name a device,
	// "gpu-clock-0000:82:00.0". Other characters become hyphens.
	Name string
	// Text is for operators, at most 2,000 characters: the condition, its consequence, what the
	// operator can do. It can change while the warning holds. A longer text is truncated.
	Text string
}

// warnings returns the driver's warnings with valid names and texts, sorted, and at most
// [protocol.MaxWarnings]. Those with the same name are joined; those above the limit are counted in
// one.
//
// Cost: O(n log n).
func (s *server) warnings() []*driverv1.Warning {
	warner, ok := s.driver.(Warner)
	if !ok {
		return nil
	}
	all := slices.Clone(warner.Warnings())
	for i := range all {
		all[i].Name = protocol.WarningName(all[i].Name)
	}
	slices.SortStableFunc(all, func(a, b Warning) int { return strings.Compare(a.Name, b.Name) })
	out := []*driverv1.Warning{}
	for _, w := range all {
		if last := len(out) - 1; last >= 0 && out[last].GetName() == w.Name {
			out[last].Text = shorten(out[last].GetText()+"; "+utf8(w.Text), protocol.MaxWarningText)
			continue
		}
		out = append(out, &driverv1.Warning{Name: w.Name, Text: shorten(utf8(w.Text), protocol.MaxWarningText)})
	}
	if more := len(out) - (protocol.MaxWarnings - 1); more > 1 {
		out = append(out[:protocol.MaxWarnings-1],
			&driverv1.Warning{Name: protocol.MoreWarnings,
				Text: fmt.Sprintf("and %d more warnings, which are not shown", more)})
	}
	return out
}

// shorten truncates a text to maxRunes characters, "..." included. It is a copy of this module,
// which imports nothing of the agent; the bounds of the agent's textutil are in bytes.
func shorten(s string, maxRunes int) string {
	if len(s) <= maxRunes {
		return s
	}
	if runes := []rune(s); len(runes) > maxRunes {
		return string(runes[:maxRunes-3]) + "..."
	}
	return s
}
