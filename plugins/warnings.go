// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"fmt"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/plugins/internal/protocol"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
)

// Warner is implemented by drivers that know things which the operator should know too and which do not keep them from working: two sources
// that disagree about the machine, a setting that does nothing. What does keep a driver from working is for [HealthChecker].
type Warner interface {
	// Warnings are all that hold now, in any order. It is asked with every health check, so at any time, before Configure and beside
	// anything, and must not block: what it tells was found out before, in an UpdateProviderTree for instance. The list is read before the call
	// returns and not kept.
	//
	// The agent logs each when it is told first and when it is told no longer, by its name, and shows all of them in its status. It
	// acts on none.
	Warnings() []Warning
}

// Warning is one that a [Warner] tells of.
type Warning struct {
	// Name is by which programs know it, and stays the same for as long as the warning holds: 1 to 80 of a-z, 0-9, "-", "_", "." and ":", a
	// letter or a digit first. It may name the thing that it is about, "gpu-clock-0000:82:00.0". Characters that it cannot have become hyphens.
	Name string
	// Text is for people, at most 2,000 characters: what is so, what is done about it, what the operator can do. It may change while the
	// warning holds. What is longer is cut off.
	Text string
}

// warnings are what the driver tells, made fit to be sent: ordered by name, each there once, and not more than can be read. Those of one
// name are told as one; those beyond the bound in one that says how many they are.
//
// Cost: O(n log n).
func (s *server) warnings() []*driverv1.Warning {
	warner, ok := s.driver.(Warner)
	if !ok {
		return nil
	}
	told := slices.Clone(warner.Warnings())
	for i := range told {
		told[i].Name = protocol.WarningName(told[i].Name)
	}
	slices.SortStableFunc(told, func(a, b Warning) int { return strings.Compare(a.Name, b.Name) })
	out := []*driverv1.Warning{}
	for _, w := range told {
		if last := len(out) - 1; last >= 0 && out[last].GetName() == w.Name {
			out[last].Text = shorten(out[last].GetText()+"; "+utf8(w.Text), protocol.MaxWarningText)
			continue
		}
		out = append(out, &driverv1.Warning{Name: w.Name, Text: shorten(utf8(w.Text), protocol.MaxWarningText)})
	}
	if more := len(out) - (protocol.MaxWarnings - 1); more > 1 {
		out = append(out[:protocol.MaxWarnings-1], &driverv1.Warning{Name: protocol.MoreWarnings, Text: fmt.Sprintf("and %d more warnings, which are not told", more)})
	}
	return out
}

// shorten cuts off what is beyond most characters.
func shorten(s string, most int) string {
	if len(s) <= most {
		return s
	}
	if runes := []rune(s); len(runes) > most {
		return string(runes[:most-3]) + "..."
	}
	return s
}
