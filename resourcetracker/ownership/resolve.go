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

func (r *resolver) add(uuid, name, parent string) {
	_, _, existed := r.former(uuid)
	r.places[uuid] = &place{name: name, parent: parent, existed: existed}
	r.order = append(r.order, uuid)
	r.queue = append(r.queue, uuid)
}

// resolve leads to a tree. All that waits is gone from places, though not from order.
func (r *resolver) resolve() {
	r.processQueue()
	if r.inconsistent() {
		for _, uuid := range r.order {
			p := r.places[uuid]
			if p == nil || !p.existed {
				continue
			}
			if _, parent, _ := r.former(uuid); parent != p.parent {
				r.unmoved = append(r.unmoved, displaced{uuid: uuid, name: p.name})
				p.parent = parent
			}
		}
		r.queue = append(r.queue, r.order...)
		r.processQueue()
	}
}

func (r *resolver) processQueue() {
	for len(r.queue) > 0 {
		uuid := r.queue[0]
		r.queue = r.queue[1:]
		if r.places[uuid] != nil && r.findParent(uuid) {
			r.claimName(uuid)
		}
	}
}

// findParent makes sure that the parent is there, and reports whether the provider is still there
// itself.
func (r *resolver) findParent(uuid string) bool {
	p := r.places[uuid]
	if p.parent == "" || r.places[p.parent] != nil {
		return true
	}
	if _, _, existed := r.former(p.parent); !existed { // it waits for its name
		if !p.existed {
			r.wait(uuid, "")
			return false
		}
		r.unmoved = append(r.unmoved, displaced{uuid: uuid, name: p.name, holder: p.parent})
		_, p.parent, _ = r.former(uuid)
		return r.findParent(uuid) // a former parent existed: once, at most
	}
	name, parent, _ := r.former(p.parent)
	r.back = append(r.back, p.parent)
	r.add(p.parent, name, parent)
	return true
}

func (r *resolver) claimName(uuid string) {
	p := r.places[uuid]
	holder, taken := r.holders[p.name]
	switch {
	case !taken:
		r.holders[p.name] = uuid
	case holder == uuid:
	case r.hasFormerName(uuid): // then the holder is not: two had different names before
		r.holders[p.name] = uuid
		r.displace(holder, uuid)
	default:
		r.displace(uuid, holder)
	}
}

// hasFormerName reports whether a provider has the name that it had before.
func (r *resolver) hasFormerName(uuid string) bool {
	name, _, existed := r.former(uuid)
	return existed && name == r.places[uuid].name
}

func (r *resolver) displace(uuid, holder string) {
	p := r.places[uuid]
	if !p.existed {
		r.wait(uuid, holder)
		return
	}
	r.renamed = append(r.renamed, displaced{uuid, p.name, holder})
	p.name, _, _ = r.former(uuid)
	r.queue = append(r.queue, uuid)
}

// wait takes a new provider out; what is below it is looked at again.
func (r *resolver) wait(uuid, holder string) {
	p := r.places[uuid]
	r.waiting = append(r.waiting, displaced{uuid, p.name, holder})
	if r.holders[p.name] == uuid {
		delete(r.holders, p.name)
	}
	if r.children == nil {
		r.children = map[string][]string{}
		for _, c := range r.order {
			if cp := r.places[c]; cp != nil && cp.parent != "" {
				r.children[cp.parent] = append(r.children[cp.parent], c)
			}
		}
	}
	delete(r.places, uuid)
	r.queue = append(r.queue, r.children[uuid]...)
}

// inconsistent reports whether some providers are each below the other, or one has come into
// another tree: from below the node to a sharing provider, or back.
func (r *resolver) inconsistent() bool {
	now, whole := r.rootsOf(func(uuid string) string { return r.places[uuid].parent })
	if !whole {
		return true
	}
	before, _ := r.rootsOf(func(uuid string) string {
		_, parent, _ := r.former(uuid)
		return parent
	})
	for uuid, p := range r.places {
		if p.existed && now[uuid] != before[uuid] {
			return true
		}
	}
	return false
}

// rootsOf returns the root above each provider that is in places, and whether that leads to an end
// everywhere. Cost: O(providers).
func (r *resolver) rootsOf(parentOf func(uuid string) string) (roots map[string]string, whole bool) {
	roots = make(map[string]string, len(r.places))
	seen := make(map[string]int, len(r.places)) // the walk on which it was seen
	var path []string
	for walk, uuid := range r.order {
		if r.places[uuid] == nil {
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
