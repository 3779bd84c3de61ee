// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/compute-agent/compute-agent/plugins"
)

// Warning is a condition that a driver reports although it works.
type Warning struct {
	Name string `json:"name"`
	Text string `json:"text"`
	// Since is when it was first reported. It stays if another process of the driver reports the
	// same.
	Since time.Time `json:"since"`
}

// warnings are the current warnings, all logged, by name. They outlive the driver's process, so
// that the same warnings of a new process are not logged again.
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
