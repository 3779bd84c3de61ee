// SPDX-License-Identifier: Apache-2.0

package resourcetracker

import (
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/plugins"
)

// noteDraft records what a pass has found besides what it writes, and logs each item once.
func (t *Tracker) noteDraft(n *nodeState, d draft) {
	t.mu.Lock()
	defer t.mu.Unlock()
	kept := make([]string, 0, len(d.kept))
	for _, k := range d.kept {
		kept = append(kept, k.String())
	}
	kept = append(kept, d.refused...)
	draining := make([]string, 0, len(d.draining))
	for _, item := range d.draining {
		draining = append(draining,
			item.String()+heldBy(d.holders[plugins.Place{Provider: item.Provider, Class: item.Class}]))
	}
	n.Layout, n.Shape = d.next.Layout, d.next.Layout
	logged := map[string]bool{}
	logNew := func(level zerolog.Level, lines []string, message string) {
		for _, line := range lines {
			logged[line] = true
			if !n.logged[line] {
				t.config.Logger.WithLevel(level).Str("driver", t.config.Name).Str("node", n.Name).
					Str("what", line).Msg(message)
			}
		}
	}
	logNew(zerolog.InfoLevel, kept, "The driver tried to change something that it does not own. It was left as it is.")
	logNew(zerolog.WarnLevel, d.conflicts, "An entry of provider.yaml has no effect.")
	logNew(zerolog.WarnLevel, draining,
		"Guests still use inventory that the driver no longer reports. It stays in Placement, closed for new "+
			"guests, until it is free.")
	for _, line := range d.drift {
		if !n.logged["drift: "+line] {
			t.count(EventDrift, n.Name, 1)
		}
		logged["drift: "+line] = true
	}
	logNew(zerolog.InfoLevel, d.drift, "Placement does not have what this agent wrote last: another client changed it.")
	n.Kept, n.Conflicts, n.Draining, n.Drift, n.logged = kept, d.conflicts, draining, d.drift, logged
}
