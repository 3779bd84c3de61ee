// SPDX-License-Identifier: Apache-2.0

package ledger

import "iter"

// indexOwner updates the index of consumers by project when a consumer is added,
// changed or removed; without a record it has ID 0 and belongs to no project. Cost: a
// copy of one chunk of the set and of its list of chunks, which is about 12 KB
// for a project with 100,000 consumers.
func (d draft) indexOwner(was, is *Consumer) {
	type ownedConsumer struct {
		project  string
		consumer int64
	}
	if (ownedConsumer{was.Project, was.ID}) == (ownedConsumer{is.Project, is.ID}) {
		return
	}
	if was.ID != 0 {
		d.link(&d.owned, d.projectID(was.Project), was.ID, false)
	}
	if is.ID != 0 {
		d.link(&d.owned, d.projectID(is.Project), is.ID, true)
	}
}

func (d draft) projectID(name string) int64 {
	id, _ := d.projects.ids.Get(name)
	return id
}

// ConsumersOf iterates over the consumers of a project in order of creation.
// Cost: the number of the project's consumers.
func (s *Snapshot) ConsumersOf(project string) iter.Seq[*Consumer] {
	return func(yield func(*Consumer) bool) {
		id, ok := s.projects.id(project)
		if !ok {
			return
		}
		owned, _ := s.owned.Get(id)
		for id := range owned.All() {
			c, _ := s.consumers.Get(id)
			if c.visible() && !yield(c) {
				return
			}
		}
	}
}

// User returns the id under which the user with an id is stored. It is another spelling of the id
// if the database treats both as equal.
func (s *Snapshot) User(id string) string {
	if row, ok := s.users.id(id); ok {
		id, _ = s.users.byID.Get(row)
	}
	return id
}

// Projects iterates over the projects that own consumers, in the order in
// which they were created.
func (s *Snapshot) Projects() iter.Seq[string] {
	return func(yield func(string) bool) {
		for id := range s.owned.All() {
			name, _ := s.projects.byID.Get(id)
			if !yield(name) {
				return
			}
		}
	}
}

// ConsumerCount returns how many consumers have a record.
func (s *Snapshot) ConsumerCount() int { return s.consumers.Len() }

// MissingConsumers returns how many consumers have allocations and no record,
// as in a database that an old Placement wrote. Tx.AddMissingConsumers adds the
// records.
func (s *Snapshot) MissingConsumers() int { return s.orphans.Len() }
