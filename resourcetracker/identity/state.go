// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker/journal"
)

// State is the state file of one agent, which alone has the state directory. Its methods may be
// called from several goroutines.
type State struct {
	path string
	now  func() time.Time

	mu     sync.Mutex
	record *Record // nil: there is no file yet
}

// Open reads the state file below a state directory. A missing file is not an error. A file that
// cannot be read is an [*Error], and is never replaced.
func Open(dir string) (*State, error) {
	path := filepath.Join(dir, FileName)
	r, err := read(path)
	if err != nil {
		return nil, err
	}
	return &State{path: path, now: time.Now, record: r}, nil
}

// Record returns a copy of what the file says; ok is false if there is none yet.
func (s *State) Record() (r Record, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.record == nil {
		return Record{}, false
	}
	return s.record.clone(), true
}

func (r Record) clone() Record {
	r.Nodes, r.Given, r.AsNew, r.Former = maps.Clone(r.Nodes), maps.Clone(r.Given),
		slices.Clone(r.AsNew), maps.Clone(r.Former)
	if r.Renaming != nil {
		renaming := *r.Renaming
		r.Renaming = &renaming
	}
	return r
}

// change writes a changed record, and keeps it only if it was written. s.mu is held.
func (s *State) change(edit func(*Record)) error {
	r := Record{Version: version, Created: s.now().UTC()}
	if s.record != nil {
		r = s.record.clone()
	}
	edit(&r)
	if err := write(s.path, &r); err != nil {
		return fmt.Errorf("recording the host of this state directory: %w", err)
	}
	s.record = &r
	return nil
}

// CheckFirstStart is called when there is no compute_id, because only the first start may create
// one. recordsDir is the directory of the nodes' records below the state directory.
//
// Errors: an [*Error] if the state directory shows that this is not the first start.
func (s *State) CheckFirstStart(recordsDir string) error {
	dir := filepath.Dir(s.path)
	if r, ok := s.Record(); ok {
		return &Error{
			Problem: fmt.Sprintf("this host's identity is missing: there is no compute_id, and %s says that it was %s",
				s.path, r.UUID),
			Hint: fmt.Sprintf(
				"restore it: `compute-agent adopt --uuid %s`; if this is a new host to Placement, empty %s first",
				r.UUID, dir),
		}
	}
	for _, found := range []string{filepath.Join(dir, recordsDir), filepath.Join(dir, journal.DirName)} {
		files, err := os.ReadDir(found)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if len(files) == 0 {
			continue
		}
		return &Error{
			Problem: fmt.Sprintf(
				"this host's identity is missing: there is no compute_id, and %s shows that this is not the "+
					"first start", filepath.Join(found, files[0].Name())),
			Hint: "restore it: `compute-agent adopt --uuid UUID` with the " +
				"uuid of this host's resource provider in Placement " +
				"(openstack resource provider list --name HOST); if this is a new host to Placement, empty " + dir +
				" first",
		}
	}
	return nil
}

// Self is the identity that an agent has when it starts.
type Self struct {
	// UUID is from compute_id, Host is agent.host, Machine the hash of the machine's id or "".
	UUID, Host, Machine string
}

// Update compares the agent's identity at start-up with the one in the state file. If the
// difference is harmless, it updates the file, and note describes the difference for the log. If
// there is no file, it creates one.
//
// Errors: an [*Error] if the agent must not go on. Nothing is written then.
//
// Cost: nothing is written if nothing changed.
func (s *State) Update(self Self) (note string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.record == nil {
		return "", s.change(func(r *Record) { r.UUID, r.Host, r.Machine = self.UUID, self.Host, self.Machine })
	}
	note, err = compareSelf(*s.record, self, s.path)
	if err != nil {
		return "", err
	}
	machine := cmp.Or(self.Machine, s.record.Machine) // one boot without it must not make a copy elsewhere look right
	if s.record.Host == self.Host && s.record.Machine == machine {
		return note, nil
	}
	return note, s.change(func(r *Record) { r.Host, r.Machine = self.Host, machine })
}

// Check is [State.Update] without writing, for a command that does part of the agent's work while
// no agent runs. It accepts a state directory without a file, as a first start.
func (s *State) Check(self Self) (note string, err error) {
	r, ok := s.Record()
	if !ok {
		return "", nil
	}
	return compareSelf(r, self, s.path)
}

// compareSelf implements the table in the package documentation. Pure.
func compareSelf(r Record, self Self, path string) (note string, err error) {
	host, machine := r.Host == self.Host, r.Machine == self.Machine
	unknown := r.Machine == "" || self.Machine == ""
	old := r.reportedAs()
	switch {
	case r.Renaming != nil:
		return "", &Error{
			Problem: fmt.Sprintf("according to %s, the rename of node %s to %s, begun %s, is not finished", path,
				r.Renaming.From, r.Renaming.To, r.Renaming.Begun.UTC().Format(time.RFC3339)),
			Hint: fmt.Sprintf("`compute-agent adopt --rename --node %s --uuid %s` finishes it",
				r.Renaming.To, r.Renaming.Root),
		}
	case r.UUID != self.UUID:
		return "", &Error{
			Problem: fmt.Sprintf(
				"compute_id says that this host is %s, but according to %s it was %s: the file was replaced", self.UUID,
				path, r.UUID),
			Hint: fmt.Sprintf(
				"if that is intended: `compute-agent adopt --uuid %s`; if not, restore the old one: `compute-agent "+
					"adopt --uuid %s`",
				self.UUID, r.UUID),
		}
	case host && (machine || unknown):
		return "", nil
	case host:
		return "The machine id changed since the last start, but the host name did not: this host was reinstalled, " +
			"or moved to another machine, with its state directory. If two machines have this name now, stop one: " +
			"both write to the same resource providers.", nil
	case !machine && !unknown:
		return "", &Error{
			Problem: fmt.Sprintf(
				"%s was written on another machine, on host %s, and this is %s: this state directory is a copy", path,
				r.Host, self.Host),
			Hint: fmt.Sprintf(
				"to make this a separate host, stop the agent and empty %s (and "+
					"remove a copied compute_id beside the configuration); if this is %s "+
					"on new hardware and under a new name: `compute-agent adopt --rename`",
				filepath.Dir(path), r.Host),
		}
	case unknown:
		return "", &Error{
			Problem: fmt.Sprintf(
				"%s was written on host %s, and this is %s; it is unknown whether it is the same machine, since "+
					"%s has no id", path,
				r.Host, self.Host, MachineFile),
			Hint: fmt.Sprintf(
				"if the host was renamed, `compute-agent adopt --rename`, or restore its "+
					"old name (agent.host = %q); if this state directory is a copy of another "+
					"host's, empty %s (and remove a copied compute_id beside the configuration)",
				r.Host, filepath.Dir(path)),
		}
	case old == "":
		return fmt.Sprintf(
			"This host was named %s at its last start. It reported nothing under that name, so there is "+
				"nothing to rename.", r.Host), nil
	}
	return "", &Error{
		Problem: fmt.Sprintf("according to %s, this machine is host %s, but it is named %s now; Placement has %s",
			path, r.Host, self.Host, old),
		Hint: fmt.Sprintf(
			"restore the host's old name (agent.host = %q), or, if it was renamed for good and Nova has no guests on "+
				"it under the old name, `compute-agent adopt --rename`", r.Host),
	}
}

// reportedAs names the nodes that were reported, or is "".
func (r Record) reportedAs() string {
	var names []string
	for _, id := range slices.Sorted(maps.Keys(r.Nodes)) {
		names = append(names, fmt.Sprintf("%s (%s)", r.Nodes[id].Name, id))
	}
	const most = 3
	if len(names) > most {
		names = append(names[:most], fmt.Sprintf("%d more", len(names)-most))
	}
	return strings.Join(names, ", ")
}

// Reported records that Placement has a node, and which driver reports it.
//
// Cost: a look-up in a map; for a node that is new or has another name, a file is written.
func (s *State) Reported(node plugins.Node, driver string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.record == nil {
		return errors.New("a node was reported before the host's identity was known")
	}
	known, ok := s.record.Nodes[node.UUID]
	asNew := slices.Contains(s.record.AsNew, node.Name)
	given := s.record.Given[node.UUID] == driver
	if ok && known.Name == node.Name && known.Driver == driver && !asNew && !given {
		return nil
	}
	return s.change(func(r *Record) {
		if r.Nodes == nil {
			r.Nodes = map[string]Node{}
		}
		if !ok {
			known.Since = s.now().UTC()
		}
		known.Name, known.Driver = node.Name, driver
		r.Nodes[node.UUID] = known
		if given {
			delete(r.Given, node.UUID)
		}
		r.AsNew = slices.DeleteFunc(r.AsNew, func(name string) bool { return name == node.Name })
	})
}

// ForgetNode drops a node whose providers are deleted.
func (s *State) ForgetNode(root string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.record == nil {
		return nil
	}
	_, reported := s.record.Nodes[root]
	_, given := s.record.Given[root]
	if !reported && !given {
		return nil
	}
	return s.change(func(r *Record) { delete(r.Nodes, root); delete(r.Given, root) })
}

// Assign records that a node belongs to a driver from now on, whichever had it before.
func (s *State) Assign(root, driver string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.record == nil {
		return fmt.Errorf("no agent was started on this state directory (%s) yet: there is no node to assign", s.path)
	}
	return s.change(func(r *Record) {
		if r.Given == nil {
			r.Given = map[string]string{}
		}
		r.Given[root] = driver
	})
}

// Owner returns the driver that a node belongs to: the one to which an operator assigned it, or
// else the one that reported it last; "" if none is recorded.
func (r Record) Owner(root string) string {
	return cmp.Or(r.Given[root], r.Nodes[root].Driver)
}

// Error is a refusal, because the agent might report as another host or to another Placement.
// Nothing was written. It wraps [reportclient.ErrIdentity], as the errors do if Placement has the
// name or uuid for another node.
type Error struct {
	// Problem says what was found where, Hint names the ways out.
	Problem, Hint string
}

func (e *Error) Error() string { return e.Problem + "; what to do: " + e.Hint }

// Unwrap makes it a [reportclient.ErrIdentity].
func (e *Error) Unwrap() error { return reportclient.ErrIdentity }
