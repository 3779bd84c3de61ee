// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"cmp"
	"fmt"
	"slices"
)

// SetIdentity sets the host's identity in the state file to one that the operator states, after
// compute_id was exchanged or the host was renamed. It forgets the node with the former uuid, which
// is not this host's.
func (s *State) SetIdentity(self Self) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.record; r != nil &&
		(Self{r.UUID, r.Host, r.Machine}) == (Self{self.UUID, self.Host, cmp.Or(self.Machine, r.Machine)}) {
		return nil
	}
	return s.change(func(r *Record) {
		if r.UUID != self.UUID {
			delete(r.Nodes, r.UUID)
		}
		r.UUID, r.Host, r.Machine = self.UUID, self.Host, cmp.Or(self.Machine, r.Machine)
	})
}

// AllowAsNew lets the agent create nodes, by name, in a Placement that does not have them. It is in
// effect until Placement has them.
func (s *State) AllowAsNew(names ...string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.record == nil {
		return fmt.Errorf(
			"this agent was never started on this state directory (%s): nothing prevents it from reporting a "+
				"node as new", s.path)
	}
	all := append(slices.Clone(s.record.AsNew), names...)
	slices.Sort(all)
	all = slices.Compact(all)
	if slices.Equal(all, s.record.AsNew) {
		return nil
	}
	return s.change(func(r *Record) { r.AsNew = all })
}

// BeginRename records the old and the new name of a node, before its first provider is renamed, so
// that the renaming can continue after a crash.
func (s *State) BeginRename(root, from, to string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.record != nil && s.record.Renaming != nil {
		if r := s.record.Renaming; r.Root == root && r.From == from && r.To == to {
			return nil
		}
		return fmt.Errorf("another rename, of %s to %s, is not finished", s.record.Renaming.From, s.record.Renaming.To)
	}
	return s.change(func(r *Record) {
		if r.UUID == "" { // no agent was started here yet
			r.UUID, r.Host = root, to
		}
		r.Renaming = &Renaming{Root: root, From: from, To: to, Begun: s.now().UTC()}
	})
}

// EndRename records that all providers are renamed, and the host's identity afterwards.
func (s *State) EndRename(self Self) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.change(func(r *Record) {
		if r.Renaming != nil {
			if node, ok := r.Nodes[r.Renaming.Root]; ok {
				node.Name = r.Renaming.To
				r.Nodes[r.Renaming.Root] = node
			}
			r.renamed(r.Renaming.From, r.Renaming.To)
		}
		if r.UUID != self.UUID {
			delete(r.Nodes, r.UUID)
		}
		r.Renaming, r.UUID, r.Host, r.Machine = nil, self.UUID, self.Host, cmp.Or(self.Machine, r.Machine)
	})
}

// renamed notes that a node has another name now, by which drivers find what they made for it.
func (r *Record) renamed(from, to string) {
	if r.Former == nil {
		r.Former = map[string]string{}
	}
	for name, present := range r.Former {
		if present == from {
			r.Former[name] = to
		}
	}
	r.Former[from] = to
	delete(r.Former, to)
}
