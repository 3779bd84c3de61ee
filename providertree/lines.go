// SPDX-License-Identifier: Apache-2.0

package providertree

import (
	"fmt"
	"maps"
	"slices"
)

// Lines are the changes, a line each, in a fixed order.
func (c Changes) Lines() []string {
	var out []string
	for _, p := range c.Added {
		line := fmt.Sprintf("%s (%s) added", p.Name, p.UUID)
		for _, class := range slices.Sorted(maps.Keys(p.Inventories)) {
			line += fmt.Sprintf(", with %d %s", p.Inventories[class].Total, class)
		}
		out = append(out, line)
	}
	for _, p := range c.Removed {
		out = append(out, fmt.Sprintf("%s (%s) removed", p.Name, p.UUID))
	}
	for _, change := range c.Changed {
		out = append(out, change.Lines()...)
	}
	return out
}

// Lines are what differs, a line each, under the name from before.
func (c Change) Lines() []string {
	var out []string
	note := func(format string, args ...any) {
		out = append(out, c.Before.Name+": "+fmt.Sprintf(format, args...))
	}
	if c.Renamed() {
		note("renamed to %s", c.After.Name)
	}
	if c.Moved() {
		note("moved below %q, was below %q", c.After.ParentUUID, c.Before.ParentUUID)
	}
	classes := slices.AppendSeq(slices.Collect(maps.Keys(c.Before.Inventories)), maps.Keys(c.After.Inventories))
	slices.Sort(classes)
	for _, class := range slices.Compact(classes) {
		was, had := c.Before.Inventories[class]
		is, has := c.After.Inventories[class]
		switch {
		case !had:
			note("%s added (%s)", class, is.line())
		case !has:
			note("%s removed (%s)", class, was.line())
		case !was.Equal(is):
			note("%s is %s, was %s", class, is.line(), was.line())
		}
	}
	for _, list := range []struct {
		what    string
		was, is []string
	}{{"trait", c.Before.Traits, c.After.Traits}, {"aggregate", c.Before.Aggregates, c.After.Aggregates}} {
		for _, x := range list.is {
			if !slices.Contains(list.was, x) {
				note("%s %s added", list.what, x)
			}
		}
		for _, x := range list.was {
			if !slices.Contains(list.is, x) {
				note("%s %s removed", list.what, x)
			}
		}
	}
	return out
}

func (i Inventory) line() string {
	i = i.Normalize()
	return fmt.Sprintf("total %d, reserved %d, min_unit %d, max_unit %d, step_size %d, ratio %v",
		i.Total, i.Reserved, i.MinUnit, i.MaxUnit, i.StepSize, i.AllocationRatio)
}
