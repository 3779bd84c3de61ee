// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"iter"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Host is what a host may report of itself: what it reported when it came, or what an operator has
// stated. Package hostpolicy has the rules by which it bounds the host's writes. It does not depend
// on the host's providers, and stays when these are deleted. It is deeply immutable.
type Host struct {
	// ID is the database's number of the host.
	ID   int64
	Name string
	// Since is when it began to report, in whole seconds; the zero time if it began before that was
	// recorded.
	Since time.Time
	// Classes are amounts by resource class.
	Classes map[string]int64
	// Traits are kinds of traits, sorted.
	Traits []string
}

// Host returns what a host may report, by the host's name.
func (s *Snapshot) Host(name string) (*Host, bool) {
	id, ok := s.hostIDs.Get(name)
	if !ok {
		return nil, false
	}
	return s.hosts.Get(id)
}

// Hosts iterates over all hosts in order of their IDs.
func (s *Snapshot) Hosts() iter.Seq[*Host] {
	return func(yield func(*Host) bool) {
		for _, h := range s.hosts.All() {
			if !yield(h) {
				return
			}
		}
	}
}

// ValidHostName reports whether a host can have a name, which all databases can store.
func ValidHostName(name string) bool {
	return name != "" && utf8.ValidString(name) && !strings.ContainsFunc(name, unicode.IsControl)
}

// SetHost replaces what the host of that name may report, whatever the ID. Cost: its classes and
// kinds of traits, and a row for each that differs. Kinds: InvalidName.
func (tx *Tx) SetHost(h Host) (*Host, error) {
	if !ValidHostName(h.Name) {
		return nil, &Error{Kind: InvalidName, Name: h.Name, Detail: "no host can have this name"}
	}
	old, _ := tx.Host(h.Name)
	now := &h
	now.Since = h.Since.UTC().Truncate(time.Second)
	now.Classes, now.Traits = maps.Clone(h.Classes), slices.Compact(slices.Sorted(slices.Values(h.Traits)))
	var was map[hostKey]int64
	if now.ID = tx.next.host; old != nil {
		now.ID, was = old.ID, old.rows()
	}
	is := now.rows()
	for _, key := range slices.SortedFunc(maps.Keys(was), compareHostKeys) {
		if _, stays := is[key]; !stays {
			tx.recordRow(DeleteHostRow{HostRow{now.ID, key.kind, key.name, was[key]}})
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(is), compareHostKeys) {
		row := HostRow{now.ID, key.kind, key.name, is[key]}
		switch amount, had := was[key]; {
		case !had:
			tx.recordRow(InsertHostRow{row})
		case amount != row.Amount:
			tx.recordRow(UpdateHostRow{row})
		}
	}
	tx.putHost(old, now)
	return now, nil
}

// hostKey is what a row of a host is about.
type hostKey struct {
	kind HostKind
	name string
}

func compareHostKeys(a, b hostKey) int {
	if a.kind != b.kind {
		return int(a.kind) - int(b.kind)
	}
	return strings.Compare(a.name, b.name)
}

// rows are the rows of the host, by what they are about.
func (h *Host) rows() map[hostKey]int64 {
	out := make(map[hostKey]int64, 1+len(h.Classes)+len(h.Traits))
	since := int64(0)
	if !h.Since.IsZero() {
		since = h.Since.Unix()
	}
	out[hostKey{HostItself, h.Name}] = since
	for class, amount := range h.Classes {
		out[hostKey{HostClass, class}] = amount
	}
	for _, kind := range h.Traits {
		out[hostKey{HostTraits, kind}] = 0
	}
	return out
}

// putHost replaces a host. old is nil for a new one, now for a removed one.
func (d draft) putHost(old, now *Host) {
	var was, is Host
	if old != nil {
		was = *old
	}
	if now != nil {
		is = *now
	}
	id := max(was.ID, is.ID)
	d.rename(&d.hostIDs, id, was.Name, is.Name)
	if now == nil {
		d.hosts = d.hosts.Delete(d.owner, id)
		return
	}
	d.hosts = d.hosts.Set(d.owner, id, now)
	d.next.host = max(d.next.host, id+1)
}

// assembleHosts joins the rows of hosts, by ID. What has an empty name is no host's, and keeps
// its ID.
func assembleHosts(rows []HostRow) (map[int64]*Host, error) {
	hosts, named := map[int64]*Host{}, map[int64]bool{}
	for _, r := range rows {
		h := hosts[r.ID]
		if h == nil {
			h = &Host{ID: r.ID, Classes: map[string]int64{}}
			hosts[r.ID] = h
		}
		switch r.Kind {
		case HostItself:
			h.Name, named[r.ID] = r.Name, true
			if r.Amount != 0 {
				h.Since = time.Unix(r.Amount, 0).UTC()
			}
		case HostClass:
			h.Classes[r.Name] = r.Amount
		case HostTraits:
			h.Traits = append(h.Traits, r.Name)
		}
	}
	for _, h := range hosts {
		if !named[h.ID] {
			return nil, badStateError(
				"what host number %d may report is there, and not its name; delete all rows of this id from the "+
					"table ledger_hosts", h.ID)
		}
		slices.Sort(h.Traits)
	}
	return hosts, nil
}

// refreshHosts replaces the hosts that a delta names.
func (d draft) refreshHosts(delta *Delta) error {
	changed, err := assembleHosts(delta.Hosts)
	if err != nil {
		return err
	}
	for _, id := range delta.HostIDs {
		old, _ := d.hosts.Get(id)
		if now := changed[id]; old != nil || now != nil {
			d.putHost(old, now)
		}
	}
	return nil
}
