// SPDX-License-Identifier: Apache-2.0

package resourcetracker

import (
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/plugins"
)

// noteDraft keeps, and tells once, what a pass has found besides what it writes.
func (t *Tracker) noteDraft(n *nodeState, d draft) {
	t.mu.Lock()
	defer t.mu.Unlock()
	kept := make([]string, 0, len(d.kept))
	for _, k := range d.kept {
		kept = append(kept, k.String())
	}
	kept = append(kept, d.refused...)
	retiring := make([]string, 0, len(d.retiring))
	for _, r := range d.retiring {
		retiring = append(retiring, r.String()+heldBy(d.holders[plugins.Place{Provider: r.Provider, Class: r.Class}]))
	}
	n.Shape = d.next.Shape
	told := map[string]bool{}
	tell := func(level zerolog.Level, lines []string, message string) {
		for _, line := range lines {
			told[line] = true
			if !n.told[line] {
				t.config.Logger.WithLevel(level).Str("driver", t.config.Name).Str("node", n.Name).Str("what", line).Msg(message)
			}
		}
	}
	tell(zerolog.InfoLevel, kept, "The driver tried to change something that it does not own. It was left as it is.")
	tell(zerolog.WarnLevel, d.conflicts, "An entry of provider.yaml has no effect.")
	tell(zerolog.WarnLevel, retiring, "Guests still use inventory that the driver no longer reports. It stays in Placement, closed for new guests, until it is free.")
	for _, line := range d.drift {
		if !n.told["drift: "+line] {
			t.count(EventDrift, n.Name, 1)
		}
		told["drift: "+line] = true
	}
	tell(zerolog.InfoLevel, d.drift, "Placement does not have what this agent wrote last: another client changed it.")
	n.Kept, n.Conflicts, n.Retiring, n.Drift, n.told = kept, d.conflicts, retiring, d.drift, told
}
