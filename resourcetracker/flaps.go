// SPDX-License-Identifier: Apache-2.0

package resourcetracker

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
)

// How a driver that flaps is recognized. An item that goes to and fro counts sooner than one that
// only grows or only shrinks, as the functions of a card do that come one after another: that one
// must be written in every pass of the window.
const (
	// flapWindow is how many passes are looked back upon, flapPasses in how many of them an item
	// must have been written.
	flapWindow, flapPasses = 16, 10
	// flapValues is how many values of an item are kept, flapItems how many items of a node.
	flapValues, flapItems = 4, 256
	// revertWindow is how many passes may lie between two in which an item is restored,
	// revertPasses how many must have restored it, until it counts as one that another client
	// overwrites.
	revertWindow, revertPasses = 64, 3
)

// flapKey is one item that can be written: an inventory, a trait, an aggregate or a provider
// itself.
type flapKey struct{ provider, name, kind, symbol string }

func (k flapKey) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s", k.kind, k.symbol)) + " of " + k.name
}

// flapping is what was written of an item in the last passes.
type flapping struct {
	passes    uint16 // a bit for each of the last passes, the newest is the lowest
	total     int    // in how many passes in all, since the window was last empty
	idle      int    // passes since the last that wrote it
	values    []string
	reversed  bool // a value came back, or the numbers went up and down
	direction int  // -1, 0 or 1: which way the last change went
	number    int64
	// reverts is how many passes restored it because another client had changed it, sinceRevert how
	// many passes there were since the last of them, and found the value that the last one
	// replaced, "" if unknown.
	reverts, sinceRevert int
	found                string
}

// flaps remembers which items the passes over one node wrote. Its memory is bounded by flapItems.
type flaps map[flapKey]*flapping

// observe takes the writes of one pass that ended, which may be none.
func (f flaps) observe(done []reportclient.Operation) {
	for key, item := range f {
		item.passes <<= 1
		item.idle++
		if item.sinceRevert++; item.sinceRevert > revertWindow {
			item.reverts = 0
		}
		switch {
		case item.idle > revertWindow:
			delete(f, key)
		case item.passes == 0: // what was written last shows whether another client changes it
			item.total, item.reversed, item.direction = 0, false, 0
			item.values = item.values[len(item.values)-1:]
		}
	}
	for _, op := range done {
		for key, v := range flapValuesOf(op) {
			item := f[key]
			if item == nil {
				if len(f) >= flapItems {
					continue
				}
				item = &flapping{}
				f[key] = item
			}
			item.write(v)
		}
	}
}

// flapValue is a value as text and, if it is a number, as number.
type flapValue struct {
	text   string
	number int64
	// before is the text of what Placement had before; "" if that is not known.
	before string
}

func (f *flapping) write(v flapValue) {
	f.idle = 0
	if n := len(f.values); n > 0 && (f.values[n-1] == v.text || v.before != "" && f.values[n-1] != v.before) {
		// another client had changed it, and the driver's answer may follow from that: the driver
		// did not flap, see Drift
		f.values[n-1], f.number, f.found = v.text, v.number, v.before
		f.passes |= 1
		f.reverts, f.sinceRevert = f.reverts+1, 0
		return
	}
	way := cmp.Compare(v.number, f.number)
	f.reversed = f.reversed || slices.Contains(f.values, v.text) || f.direction*way < 0
	if len(f.values) > 0 {
		f.direction = way
	}
	f.passes, f.total, f.number = f.passes|1, f.total+1, v.number
	if f.values = append(f.values, v.text); len(f.values) > flapValues {
		f.values = slices.Delete(f.values, 0, 1)
	}
}

func (f *flapping) flaps() bool {
	n := bits.OnesCount16(f.passes)
	return n >= flapPasses && f.reversed && f.total >= flapPasses || n == flapWindow && f.total >= flapWindow
}

// lines are the items that flap, sorted, each with its last values.
func (f flaps) lines() []string {
	var out []string
	for key, item := range f {
		if item.flaps() {
			out = append(out, fmt.Sprintf("%s: %s, written by %d of the last %d passes",
				key, strings.Join(item.values, ", then "), bits.OnesCount16(item.passes), flapWindow))
		}
	}
	slices.Sort(out)
	return out
}

// overwritten are the items that another client changes again and again and the passes restore,
// sorted, each with the last values.
func (f flaps) overwritten() []string {
	var out []string
	for key, item := range f {
		if item.reverts >= revertPasses {
			out = append(out, fmt.Sprintf("%s: %s, restored %d times; the last time it was found as: %s",
				key, item.values[len(item.values)-1], item.reverts, cmp.Or(item.found, "another value")))
		}
	}
	slices.Sort(out)
	return out
}

// flapValuesOf are the items that an operation changes, with what they become.
func flapValuesOf(op reportclient.Operation) map[flapKey]flapValue {
	out := map[flapKey]flapValue{}
	var before providertree.Provider
	if op.Before != nil {
		before = *op.Before
	}
	key := func(kind, symbol string) flapKey {
		return flapKey{provider: op.UUID, name: op.Provider, kind: kind, symbol: symbol}
	}
	was := func(text string) string {
		if op.Before == nil {
			return ""
		}
		return text
	}
	const added, removed = "added", "removed"
	set := func(kind string, before, after []string) {
		for _, item := range before {
			if !slices.Contains(after, item) {
				out[key(kind, item)] = flapValue{text: removed, before: was(added)}
			}
		}
		for _, item := range after {
			if !slices.Contains(before, item) {
				out[key(kind, item)] = flapValue{text: added, number: 1, before: was(removed)}
			}
		}
	}
	switch op.Kind {
	case reportclient.CreateProvider:
		out[key("resource provider", "")] = flapValue{text: "created", number: 1}
	case reportclient.DeleteProvider:
		out[key("resource provider", "")] = flapValue{text: "deleted"}
	case reportclient.UpdateProvider:
		out[key("place and name", "")] = flapValue{text: op.Provider + " below " + op.Parent}
	case reportclient.SetInventories:
		for class, inv := range op.Inventories {
			if former, had := before.Inventories[class]; !had {
				out[key("inventory", class)] = flapValue{text: inventoryText(inv), number: inv.Total,
					before: was(removed)}
			} else if !former.Equal(inv) {
				out[key("inventory", class)] = flapValue{
					text: inventoryText(inv), number: inv.Total, before: was(inventoryText(former)),
				}
			}
		}
		for class, former := range before.Inventories {
			if _, stays := op.Inventories[class]; !stays {
				out[key("inventory", class)] = flapValue{text: removed, before: was(inventoryText(former))}
			}
		}
	case reportclient.SetTraits:
		set("trait", before.Traits, op.Traits)
	case reportclient.SetAggregates:
		set("aggregate", before.Aggregates, op.Aggregates)
	}
	return out
}

func inventoryText(i providertree.Inventory) string {
	n := i.Normalize()
	return fmt.Sprintf("total %d, reserved %d, ratio %v, units %d to %d by %d",
		n.Total, n.Reserved, n.AllocationRatio, n.MinUnit, n.MaxUnit, n.StepSize)
}
