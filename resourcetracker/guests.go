// SPDX-License-Identifier: Apache-2.0

package resourcetracker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/compute-agent/compute-agent/internal/files"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// GuestsDir is the directory below the state directory that [SeenGuests] keeps its files in.
const GuestsDir = "guests"

// sightingKept is how long a guest that is gone is remembered.
const sightingKept = 30 * 24 * time.Hour

// Sighting is what an agent remembers of a guest that its driver has listed on a node.
type Sighting struct {
	// First is when it was listed first.
	First time.Time `json:"first_seen"`
	// Gone is when the guest was first missing from the list; zero while it is listed, also after
	// it was missing for a while.
	Gone time.Time `json:"gone_since,omitzero"`
}

// SeenGuests remembers, over restarts, which guests the driver has listed on each node. So an
// orphaned allocation of a former guest can be distinguished from one of an unknown client.
//
// Each node has a file. It is replaced as a whole and synced when a guest appears or disappears,
// and when a guest is forgotten 30 days after it disappeared. The directory must belong to this
// process alone. Methods may be called at any time from any goroutine.
type SeenGuests struct {
	dir string

	mu    sync.Mutex
	nodes map[string]seenNode // by root; what the files hold
}

// seenNode is what is remembered of a node.
type seenNode struct {
	guests map[string]Sighting
	// uncompared: a reshape was written, and what guests hold since then was not yet found to be
	// what the driver lists.
	uncompared bool
}

// seenVersion is the format of the files.
const seenVersion = 1

type seenFile struct {
	Version int                 `json:"version"`
	Root    string              `json:"root_provider_uuid"`
	Guests  map[string]Sighting `json:"guests"`
	// Uncompared: see seenNode.
	Uncompared bool `json:"reshape_uncompared,omitempty"`
}

// OpenSeenGuests returns the SeenGuests of a state directory. It reads and creates nothing.
func OpenSeenGuests(stateDir string) *SeenGuests {
	return &SeenGuests{dir: filepath.Join(stateDir, GuestsDir), nodes: map[string]seenNode{}}
}

// GuestsOf returns the remembered guests of a node, by uuid. It fails if the node's file is
// damaged. Such a file is not replaced until an operator moves it away, because its content cannot
// be rebuilt.
func (s *SeenGuests) GuestsOf(root string) (map[string]Sighting, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, err := s.load(root)
	return maps.Clone(known.guests), err
}

// Uncompared reports whether a node was reshaped and its allocations have not been found equal to
// the driver's list of guests since then.
func (s *SeenGuests) Uncompared(root string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, err := s.load(root)
	return known.uncompared, err
}

// SetUncompared records that a node is about to be reshaped (true), or that its allocations agree
// with its guests (false). It writes only a change.
func (s *SeenGuests) SetUncompared(root string, uncompared bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next, err := s.load(root)
	if err != nil || next.uncompared == uncompared {
		return err
	}
	next.uncompared = uncompared
	return s.save(root, next)
}

// Record records the complete list of a node's guests at a time. It writes only a change.
//
// Cost: O(guests); a file written and two syncs when something is new.
func (s *SeenGuests) Record(root string, guests []plugins.Guest, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	known, err := s.load(root)
	if err != nil {
		return err
	}
	now = now.UTC().Truncate(time.Second)
	next := make(map[string]Sighting, len(guests))
	for _, g := range guests {
		sighting, seen := known.guests[g.UUID]
		if !seen || sighting.First.After(now) {
			sighting.First = now
		}
		sighting.Gone = time.Time{}
		next[g.UUID] = sighting
	}
	for uuid, sighting := range known.guests {
		if _, listed := next[uuid]; listed {
			continue
		}
		// A time that cannot be is from a clock that was wrong, and proves nothing: it counts from
		// now on.
		if sighting.Gone.IsZero() || sighting.Gone.Before(sighting.First) || sighting.Gone.After(now) {
			sighting.Gone = now
		}
		if now.Sub(sighting.Gone) <= sightingKept {
			next[uuid] = sighting
		}
	}
	if maps.Equal(known.guests, next) {
		return nil
	}
	return s.save(root, seenNode{guests: next, uncompared: known.uncompared})
}

func (s *SeenGuests) path(root string) string { return filepath.Join(s.dir, root+".json") }

// load reads a node's file once. s.mu is held.
func (s *SeenGuests) load(root string) (seenNode, error) {
	if known, loaded := s.nodes[root]; loaded {
		return known, nil
	}
	if !providertree.IsCanonicalUUID(root) {
		return seenNode{}, fmt.Errorf("the guests of node %q: invalid uuid", root)
	}
	content, err := os.ReadFile(s.path(root))
	if errors.Is(err, fs.ErrNotExist) {
		return seenNode{}, nil
	}
	var f seenFile
	if err == nil {
		err = json.Unmarshal(content, &f)
	}
	switch {
	case err != nil:
	case f.Version > seenVersion:
		err = fmt.Errorf("it has version %d, but this agent knows version %d: a newer agent wrote it",
			f.Version, seenVersion)
	case f.Version < 1 || f.Root != root:
		err = fmt.Errorf("it is about node %q", f.Root)
	}
	if err != nil {
		return seenNode{},
			fmt.Errorf("%s cannot be read: %w; move it away, and the agent starts a new record of the guests it sees",
				s.path(root), files.Denied(err))
	}
	s.nodes[root] = seenNode{f.Guests, f.Uncompared}
	return s.nodes[root], nil
}

// save replaces a node's file: old or new, never part of one. s.mu is held.
func (s *SeenGuests) save(root string, n seenNode) error {
	content, err := json.MarshalIndent(
		seenFile{Version: seenVersion, Root: root, Guests: n.guests, Uncompared: n.uncompared}, "", " ")
	if err == nil {
		err = os.MkdirAll(s.dir, 0o700)
	}
	if err == nil {
		err = files.Replace(s.path(root), append(content, '\n'))
	}
	if err != nil {
		return fmt.Errorf("recording the guests of node %s: %w", root, err)
	}
	s.nodes[root] = n
	return nil
}

// NodeGuests is a node with the guests that its driver lists.
type NodeGuests struct {
	Node plugins.Node
	// Guests are all of them; nil with an Err.
	Guests []plugins.Guest
	Err    error
}

// Guests asks the driver for the guests of every node, between two passes. The error is about the
// driver as a whole: [plugins.ErrUnsupported] if it cannot list guests. An error about one node is
// in its NodeGuests.
//
// Cost: two calls of the driver for one node, and what reading its tree costs.
func (t *Tracker) Guests(ctx context.Context) ([]NodeGuests, error) {
	lister, ok := t.config.Driver.(plugins.GuestLister)
	if !ok {
		return nil, fmt.Errorf("driver %s cannot list guests: %w", t.config.Name, plugins.ErrUnsupported)
	}
	if err := t.begin(ctx); err != nil {
		return nil, err
	}
	defer t.end()
	nodes, held, err := t.availableNodes(ctx)
	if err != nil {
		return nil, err
	}
	out := []NodeGuests{}
	for _, e := range held {
		out = append(out, NodeGuests{Node: e.Node, Err: e})
	}
	for _, node := range nodes {
		g := NodeGuests{Node: node}
		g.Guests, g.Err = t.guestsOf(ctx, lister, node)
		out = append(out, g)
	}
	return out, nil
}

// guestsInterval is how often a driver is asked for its guests after a pass, so that they are
// remembered.
const guestsInterval = 5 * time.Minute

// recordGuests remembers the guests of a node after a pass that succeeded, and after a reshape
// compares what they hold with what the driver lists. That it cannot is no failure of the pass.
//
// Cost: a call of the driver every five minutes, and that of [Config.Compare] after a reshape,
// until nothing differs.
func (t *Tracker) recordGuests(ctx context.Context, node plugins.Node, state *nodeState) {
	lister, ok := t.config.Driver.(plugins.GuestLister)
	if !ok || t.config.Seen == nil || !state.guests.IsZero() && time.Since(state.guests) < guestsInterval {
		return
	}
	state.guests = time.Now()
	guests, err := t.guestsOf(ctx, lister, node)
	if err == nil {
		err = t.config.Seen.Record(node.UUID, guests, time.Now())
	}
	if err == nil {
		err = t.compareGuests(ctx, node, state, guests)
	}
	if err != nil && !errors.Is(err, plugins.ErrUnsupported) {
		t.config.Logger.Debug().Str("driver", t.config.Name).Str("node", node.Name).Err(err).
			Msg("Failed to record the guests.")
	}
}

// compareLater has the guests of a node looked at right after the pass under way, which reshapes
// it. It is recorded first, so that it is done after a crash.
func (t *Tracker) compareLater(node plugins.Node, state *nodeState) {
	state.guests = time.Time{}
	if t.config.Seen == nil {
		return
	}
	if err := t.config.Seen.SetUncompared(node.UUID, true); err != nil {
		t.config.Logger.Warn().Str("driver", t.config.Name).Str("node", node.Name).Err(err).
			Msg("Failed to record that the reshape is to be compared with the guests. Run `compute-agent " +
				"allocations audit` after it.")
	}
}

// compareGuests compares what the guests of a reshaped node hold with what the driver lists. Where
// something differs, it does so again until an operator has found out which of the two is right.
func (t *Tracker) compareGuests(
	ctx context.Context, node plugins.Node, state *nodeState, guests []plugins.Guest,
) error {
	if t.config.Compare == nil {
		return nil
	}
	if uncompared, err := t.config.Seen.Uncompared(node.UUID); err != nil || !uncompared {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, t.currentTimings().PassDeadline)
	defer cancel()
	differing, err := t.config.Compare(ctx, node, guests)
	if err != nil {
		return &passError{step: "comparing the allocations with the guests after a reshape", err: err}
	}
	t.noteDiffering(state, differing)
	if len(differing) > 0 {
		return nil
	}
	return t.config.Seen.SetUncompared(node.UUID, false)
}

func (t *Tracker) guestsOf(
	ctx context.Context, lister plugins.GuestLister, node plugins.Node,
) ([]plugins.Guest, error) {
	ctx, cancel := context.WithTimeout(ctx, t.currentTimings().PassDeadline)
	defer cancel()
	tree, err := t.config.Placement.Tree(ctx, node.UUID, node.Name)
	if err != nil {
		return nil, &passError{step: "reading from Placement", err: err}
	}
	guests, err := lister.Guests(ctx, tree, node.Name)
	if err != nil {
		return nil, &passError{step: "asking the driver for its guests", err: err}
	}
	return guests, nil
}
