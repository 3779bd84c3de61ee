// SPDX-License-Identifier: Apache-2.0

package hostpolicy

import (
	"maps"
	"slices"
	"time"

	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/wire"
)

// reportedBefore is Host.Since of a host that had reported before anyone noted when.
var reportedBefore = time.Unix(1, 0).UTC()

// clockSkew is how far the clocks of servers may differ. A time that is further ahead comes from a
// clock that was wrong.
const clockSkew = 10 * time.Minute

// fromWrongClock reports whether what is noted of a host comes from a clock that was wrong. Such a
// time never begins: what the host has had is all that is known.
func (p *Policy) fromWrongClock(h *ledger.Host) bool { return h.Since.Sub(p.deps.Now()) > clockSkew }

// openUntil is when the time ends in which all that a host reports is admitted; the zero time if
// there is none.
func (p *Policy) openUntil(h *ledger.Host) time.Time {
	window := p.deps.AdmissionWindow
	if h.Since.IsZero() || p.fromWrongClock(h) || p.deps.Now().Sub(h.Since) >= window {
		return time.Time{}
	}
	return h.Since.Add(window)
}

// State notes what an operator states of the host of a key: amounts of classes, kinds of traits
// (wire.TraitKind) and, with change.Window, that all it reports is admitted again for a while. It
// returns what is noted then.
func (p *Policy) State(tx *ledger.Tx, key string, change *wire.AdmissionChange, kinds []string) (*ledger.Host, error) {
	now := ledger.Host{Name: key, Classes: map[string]int64{}}
	if noted, known := tx.Host(key); known {
		now = *noted
		now.Classes = maps.Clone(noted.Classes)
	}
	maps.Copy(now.Classes, change.Classes)
	now.Traits = slices.Concat(now.Traits, kinds)
	if change.Window {
		if now.Since.IsZero() { // what it has is not noted yet
			admitAll(&now, reportedAs(key, tx.Snapshot).withoutClasses(now.Classes))
		}
		now.Since = p.deps.Now()
	}
	return tx.SetHost(now)
}

// Admission is what a host may report, for an answer.
func (p *Policy) Admission(h *ledger.Host) wire.HostAdmission {
	out := wire.HostAdmission{Host: h.Name, Classes: h.Classes, Factor: p.deps.CapacityFactor, Traits: h.Traits}
	if out.Traits == nil {
		out.Traits = []string{}
	}
	if since := h.Since; since.After(reportedBefore) {
		out.Since = &since
	}
	if until := p.openUntil(h); !until.IsZero() {
		out.Until = &until
	}
	return out
}
