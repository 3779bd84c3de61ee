// SPDX-License-Identifier: Apache-2.0

package cellstorm

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/test/world"
)

// fate is what the API answered a server's owner about it.
type fate int

const (
	lives   fate = iota // a boot was accepted, or a restore
	deleted             // a deletion was; it may be restored, if it was soft
	unsure              // something was asked for, and no answer came, or a failure
)

// power is whether a server's guest is to run, by what its owner was answered.
type power int

const (
	running power = iota // since a boot, a start, a reboot or a restore
	stopped              // a stop was accepted
	either               // something was asked for, and no answer came, or a failure
)

// moved is whether a client asked to move a server. What was evacuated may have two guests that
// run: nothing here cuts the old host off.
type moved int

const (
	never moved = iota
	migrated
	evacuated
)

// tracked is a server that was accepted.
type tracked struct {
	uuid, name string
	who        world.Caller
	flavor     string
	fate       fate
	power      power
	soft       bool // deleted softly, if it could be
	permanent  bool // it is started and stopped, and never deleted
	restored   bool // it is in no list before its host has started it
	busy       bool // a client has a request for it
	moved      moved
	version    int // counts what was asked for
}

// model is what was accepted, and what must not have been answered.
type model struct {
	mu      sync.Mutex
	servers map[string]*tracked
	several map[string]int // boots of several servers: their name, and how many
	wrong   []string
	counts  map[string]int // of answers, by what was asked for
}

func newModel() *model {
	return &model{servers: map[string]*tracked{}, several: map[string]int{}, counts: map[string]int{}}
}

func (m *model) violated(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.wrong) < 50 {
		m.wrong = append(m.wrong, fmt.Sprintf(format, args...))
	}
}

func (m *model) count(what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts[what]++
}

// has says whether all of these were answered.
func (m *model) has(whats ...string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !slices.ContainsFunc(whats, func(what string) bool { return m.counts[what] == 0 })
}

// take chooses a server that fits and that no client uses, and reserves it until it is given back;
// nil if there is none.
func (m *model) take(r *rand.Rand, fits func(*tracked) bool) *tracked {
	m.mu.Lock()
	defer m.mu.Unlock()
	var some []*tracked
	for _, uuid := range slices.Sorted(maps.Keys(m.servers)) {
		if s := m.servers[uuid]; !s.busy && fits(s) {
			some = append(some, s)
		}
	}
	if len(some) == 0 {
		return nil
	}
	s := some[r.IntN(len(some))]
	s.busy = true
	s.version++
	return s
}

// give gives a server back, with what has become of it.
func (m *model) give(s *tracked, f fate, soft bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	// What was asked for then may still come, but a deletion for good is the last word.
	if s.fate == unsure && (f != deleted || soft) {
		f = unsure
	}
	if s.fate == deleted && f == lives {
		s.restored, s.power = true, running
	}
	s.busy, s.fate, s.soft = false, f, soft
	s.version++
}

// givePower gives a server back after a power action that was answered, or of which nothing is
// known.
func (m *model) givePower(s *tracked, to power) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.power != either { // what was asked for then may still come
		s.power = to
	}
	s.busy = false
	s.version++
}

// move notes that a server may be moved from now on.
func (m *model) move(s *tracked, how moved) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s.moved = max(s.moved, how)
}

// movedHow says how a server may have been moved.
func (m *model) movedHow(uuid string) moved {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.servers[uuid]; s != nil {
		return s.moved
	}
	return never
}

func (m *model) add(s *tracked) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.servers[s.uuid] = s
}

// living are the servers that surely live and that no client uses, with their versions.
func (m *model) living(visible func(*tracked) bool) map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]int{}
	for uuid, s := range m.servers {
		if s.fate == lives && !s.busy && visible(s) {
			out[uuid] = s.version
		}
	}
	return out
}

// unchanged says whether a server still lives and nothing was asked for since.
func (m *model) unchanged(uuid string, version int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.servers[uuid]
	return s.fate == lives && s.version == version
}

// agrees says whether a server that lives has the power that was asked for last.
func (t *tracked) agrees(row cellwire.Server) bool {
	switch row.VMState {
	case cellwire.VMActive:
		return t.power != stopped
	case cellwire.VMStopped:
		return t.power != running
	}
	return true
}

// noHost says whether that no host could take it is all that is wrong with a server.
func noHost(row cellwire.Server) bool {
	return row.Fault != nil && strings.HasPrefix(row.Fault.Message, "No valid host was found.")
}

// judge compares what was promised with what came of it.
func (m *model) judge(p *picture, mappings map[string]apidb.Mapping) (wrong []string, outcomes map[string]int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	outcomes = map[string]int{}
	names := map[string]cellwire.Server{}
	for _, rows := range p.rows {
		for _, s := range rows {
			names[s.Name] = s
		}
	}
	for uuid, s := range m.servers {
		mapping, recorded := mappings[uuid]
		row, there := p.rows[mapping.CellUUID][uuid]
		is := "no record"
		switch {
		case !recorded:
		case there && row.Deleted, !there && mapping.Queued():
			is = "deleted"
		case there:
			is = row.VMState
		}
		was := []string{"lives", "deleted", "unsure"}[s.fate]
		if s.fate == lives {
			was += []string{", running", ", stopped", ", either"}[s.power]
		}
		outcomes[was+": "+is]++
		switch {
		case is == "no record", s.fate == deleted && is != "deleted", s.fate == lives && is == "deleted":
			wrong = append(wrong, fmt.Sprintf("%s (%s) has the fate %d and is: %s (%+v)",
				uuid, s.name, s.fate, is, mapping))
		case is == cellwire.VMError && !noHost(row):
			wrong = append(wrong, fmt.Sprintf("%s (%s) is in error: %+v", uuid, s.name, row.Fault))
		case s.fate == lives && !s.agrees(row):
			wrong = append(wrong,
				fmt.Sprintf("%s (%s) is %s, and the power asked for last is %d", uuid, s.name, is, s.power))
		case is == cellwire.VMActive && s.flavor == "huge":
			wrong = append(wrong, fmt.Sprintf("%s (%s) is active, and no host is so large", uuid, s.name))
		}
	}
	for name, n := range m.several {
		for i := 1; i < n; i++ { // the first is among the others
			if one := fmt.Sprintf("%s-%d", name, i+1); names[one].UUID == "" || names[one].Deleted {
				wrong = append(wrong, fmt.Sprintf("of the %d servers %s there is not: %s", n, name, one))
			}
		}
	}
	return append(wrong, m.wrong...), outcomes
}
