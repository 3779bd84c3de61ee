// SPDX-License-Identifier: Apache-2.0

package reshape

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker/journal"
)

// OlderDriverError says that a newer version of the driver has moved inventory in the provider
// tree. If what this version reports were written, that inventory would be in Placement twice.
// Nothing is written for the node.
type OlderDriverError struct {
	// Recorded is the layout version of the tree, Driver that of the driver, 0 if it has none; both
	// are 0 if it follows from the journal of reshapes.
	Recorded, Driver int
	// Reshape is the ID of the reshape that made the tree and can perhaps be undone, 0 if none is
	// known.
	Reshape int64
	// Returned describes the inventory that the driver reports where that reshape removed it.
	Returned []string
}

func (e *OlderDriverError) Error() string {
	const nothing = "; the driver is older than the one that created the tree, and nothing is written for the node"
	switch {
	case e.Recorded == 0:
		return fmt.Sprintf(
			"the driver reports inventory in the place from which reshape %d moved it, without asking for a "+
				"reshape, so it would be counted twice: %s%s",
			e.Reshape, strings.Join(e.Returned, "; "), nothing)
	case e.Driver == 0:
		return fmt.Sprintf("the provider tree has layout version %d, but this driver has no layout version%s",
			e.Recorded, nothing)
	}
	return fmt.Sprintf("the provider tree has layout version %d, but this driver has layout version %d%s",
		e.Recorded, e.Driver, nothing)
}

// Hint is the hint for the operator.
func (e *OlderDriverError) Hint() string {
	newer := "install the newer version of the driver again"
	if e.Recorded > 0 {
		newer = fmt.Sprintf("install a version of the driver with layout version %d again", e.Recorded)
	}
	if e.Reshape == 0 {
		return newer + "; docs/upgrading-drivers.md explains how to go back to the older one"
	}
	return fmt.Sprintf("%s; or, to stay with this one, undo the reshape: `compute-agent reshape undo %d`, as long "+
		"as nothing that it moved has changed since. "+
		"docs/upgrading-drivers.md has more", newer, e.Reshape)
}

// ToUndo returns the ID of the reshape of a node that has to be undone first, so that a
// driver with a layout version (0: without) can continue: the last one that happened and was not
// undone. It returns 0 if undoing reshapes does not lead back to that version or a lower one.
func ToUndo(history []journal.Entry, driver int) int64 {
	undone, last := map[int64]bool{}, int64(0)
	for _, e := range slices.Backward(history) {
		switch {
		case e.Outcome != reportclient.ReshapeHappened:
		case e.Undoes != 0:
			undone[e.Undoes] = true
		case !undone[e.ID]:
			if last = cmp.Or(last, e.ID); e.FromLayout <= driver {
				return last
			}
		}
	}
	return 0
}

// relocation is where a reshape has moved an inventory to.
type relocation struct {
	reshape int64
	to      []plugins.Place
}

// Returned returns the places at which the driver's answer has inventory and Placement does not.
func (d Draft) Returned() []plugins.Place {
	var back []plugins.Place
	for p := range d.Answer.All() {
		for _, class := range p.Inventories.Classes() {
			if _, there := d.Known.Inventory(p.UUID, class); !there {
				back = append(back, plugins.Place{Provider: p.UUID, Class: class})
			}
		}
	}
	return back
}

// CheckReturned refuses an answer that has inventory both in the place from which a reshape moved
// it and in the place to which it moved: a driver that is older than the reshape answers so.
// Inventory that only moves back is allowed. back is the result of [Draft.Returned].
//
// Errors: an [*OlderDriverError].
func (d Draft) CheckReturned(back []plugins.Place, history []journal.Entry) error {
	moved := movedAway(history)
	found := &OlderDriverError{}
	for _, place := range back {
		r := moved[place]
		var twice []string
		for _, to := range r.to {
			if _, there := d.Desired.Inventory(to.Provider, to.Class); there {
				p, _ := d.Desired.Provider(to.Provider)
				twice = append(twice, fmt.Sprintf("%s on %s", to.Class, p.Name))
			}
		}
		if len(twice) > 0 {
			p, _ := d.Answer.Provider(place.Provider)
			found.Reshape = max(found.Reshape, r.reshape)
			found.Returned = append(found.Returned,
				fmt.Sprintf("%s on %s, which was moved to %s", place.Class, p.Name, enumerate(twice)))
		}
	}
	if found.Reshape == 0 {
		return nil
	}
	return found
}

// movedAway is what the reshapes of a node have moved, by where it was before. What came back later
// is not among it.
func movedAway(history []journal.Entry) map[plugins.Place]relocation {
	out := map[plugins.Place]relocation{}
	for _, e := range history {
		if e.Reshape == nil || e.Outcome != reportclient.ReshapeHappened && e.Outcome != reportclient.ReshapeUnknown {
			continue
		}
		gained := map[string][]plugins.Place{}
		for _, p := range e.Reshape.Providers {
			for class := range p.After {
				place := plugins.Place{Provider: p.UUID, Class: class}
				delete(out, place)
				if _, had := p.Before[class]; !had {
					gained[class] = append(gained[class], place)
				}
			}
		}
		renames := plugins.ClassRenames(e.Renames)
		for _, p := range e.Reshape.Providers {
			for class := range p.Before {
				place := plugins.Place{Provider: p.UUID, Class: class}
				delete(out, place)
				if _, stays := p.After[class]; !stays {
					out[place] = relocation{reshape: e.ID, to: gained[renames.Present(class)]}
				}
			}
		}
	}
	return out
}
