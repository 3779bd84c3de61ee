// SPDX-License-Identifier: Apache-2.0

package ownership

// place is where a resource provider stands: its name and its parent.
type place struct {
	name, parent string
	existed      bool // it was there before, and may go back to where it was
}

// resolver puts providers that a driver has placed and providers that stay against its will into
// one tree. Each name is unique and parents exist, so one provider must yield where they clash:
//
//   - a provider under the name that it had before keeps it; one that is new, or takes another
//     name, yields;
//   - a provider that existed yields by keeping its old name, a new one by waiting until the name
//     is free, and with it what is new below it;
//   - what stays keeps its ancestors, also those that were to go;
//   - if what stays and what is moved are each below the other, or something comes into another
//     tree, nothing is moved.
//
// Cost: O(providers): each yields, waits and comes back at most once.
type resolver struct {
	places map[string]*place
	order  []string // uuids; those that came back at the end
	// former is where a provider was before.
	former func(uuid string) (name, parent string, found bool)

	// What had to be done, in order.
	waiting, renamed, unmoved []displaced
	back                      []string // uuids of ancestors

	queue    []string
	holders  map[string]string   // name -> uuid
	children map[string][]string // at the beginning, made when it is needed
}

// displaced is a provider that is not where it was to be, and the one that is in its way ("" if it
// was not one alone).
type displaced struct{ uuid, name, holder string }

func newResolver(n int, former func(uuid string) (name, parent string, found bool)) *resolver {
	return &resolver{places: make(map[string]*place, n),
		order: make([]string, 0, n), holders: make(map[string]string, n), former: former}
}

func (s *resolver) add(uuid, name, parent string) {
	_, _, existed := s.former(uuid)
	s.places[uuid] = &place{name: name, parent: parent, existed: existed}
	s.order = append(s.order, uuid)
	s.queue = append(s.queue, uuid)
}

// resolve leads to a tree. All that waits is gone from places, though not from order.
func (s *resolver) resolve() {
	s.drain()
	if s.inconsistent() {
		for _, uuid := range s.order {
			p := s.places[uuid]
			if p == nil || !p.existed {
				continue
			}
			if _, parent, _ := s.former(uuid); parent != p.parent {
				s.unmoved = append(s.unmoved, displaced{uuid: uuid, name: p.name})
				p.parent = parent
			}
		}
		s.queue = append(s.queue, s.order...)
		s.drain()
	}
}

func (s *resolver) drain() {
	for len(s.queue) > 0 {
		uuid := s.queue[0]
		s.queue = s.queue[1:]
		if s.places[uuid] != nil && s.findParent(uuid) {
			s.claimName(uuid)
		}
	}
}

// findParent makes sure that the parent is there, and reports whether the provider is still there
// itself.
func (s *resolver) findParent(uuid string) bool {
	p := s.places[uuid]
	if p.parent == "" || s.places[p.parent] != nil {
		return true
	}
	if _, _, existed := s.former(p.parent); !existed { // it waits for its name
		if !p.existed {
			s.wait(uuid, "")
			return false
		}
		s.unmoved = append(s.unmoved, displaced{uuid: uuid, name: p.name, holder: p.parent})
		_, p.parent, _ = s.former(uuid)
		return s.findParent(uuid) // a former parent existed: once, at most
	}
	name, parent, _ := s.former(p.parent)
	s.back = append(s.back, p.parent)
	s.add(p.parent, name, parent)
	return true
}

func (s *resolver) claimName(uuid string) {
	p := s.places[uuid]
	holder, taken := s.holders[p.name]
	switch {
	case !taken:
		s.holders[p.name] = uuid
	case holder == uuid:
	case s.hasFormerName(uuid): // then the holder is not: two had different names before
		s.holders[p.name] = uuid
		s.displace(holder, uuid)
	default:
		s.displace(uuid, holder)
	}
}

// hasFormerName reports whether a provider has the name that it had before.
func (s *resolver) hasFormerName(uuid string) bool {
	name, _, existed := s.former(uuid)
	return existed && name == s.places[uuid].name
}

func (s *resolver) displace(uuid, holder string) {
	p := s.places[uuid]
	if !p.existed {
		s.wait(uuid, holder)
		return
	}
	s.renamed = append(s.renamed, displaced{uuid, p.name, holder})
	p.name, _, _ = s.former(uuid)
	s.queue = append(s.queue, uuid)
}

// wait takes a new provider out; what is below it is looked at again.
func (s *resolver) wait(uuid, holder string) {
	p := s.places[uuid]
	s.waiting = append(s.waiting, displaced{uuid, p.name, holder})
	if s.holders[p.name] == uuid {
		delete(s.holders, p.name)
	}
	if s.children == nil {
		s.children = map[string][]string{}
		for _, c := range s.order {
			if cp := s.places[c]; cp != nil && cp.parent != "" {
				s.children[cp.parent] = append(s.children[cp.parent], c)
			}
		}
	}
	delete(s.places, uuid)
	s.queue = append(s.queue, s.children[uuid]...)
}

// inconsistent reports whether some providers are each below the other, or one has come into
// another tree: from below the node to a sharing provider, or back.
func (s *resolver) inconsistent() bool {
	now, whole := s.rootsOf(func(uuid string) string { return s.places[uuid].parent })
	if !whole {
		return true
	}
	before, _ := s.rootsOf(func(uuid string) string {
		_, parent, _ := s.former(uuid)
		return parent
	})
	for uuid, p := range s.places {
		if p.existed && now[uuid] != before[uuid] {
			return true
		}
	}
	return false
}

// rootsOf returns the root above each provider that is in places, and whether that leads to an end
// everywhere. Cost: O(providers).
func (s *resolver) rootsOf(parentOf func(uuid string) string) (roots map[string]string, whole bool) {
	roots = make(map[string]string, len(s.places))
	seen := make(map[string]int, len(s.places)) // the walk on which it was seen
	var path []string
	for walk, uuid := range s.order {
		if s.places[uuid] == nil {
			continue
		}
		path = path[:0]
		at, top := uuid, ""
		for top == "" {
			if known, found := roots[at]; found {
				top = known
				break
			}
			if before, found := seen[at]; found && before == walk {
				return nil, false
			}
			seen[at] = walk
			path = append(path, at)
			parent := parentOf(at)
			if parent == "" {
				top = at
			} else {
				at = parent
			}
		}
		for _, on := range path {
			roots[on] = top
		}
	}
	return roots, true
}
