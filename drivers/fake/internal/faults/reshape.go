// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// The faults of a reshape. The agent must reject each with all violations, and write nothing.
const (
	// Again: it needs a reshape although it has the allocations.
	Again = "again"
	// fail: it fails for everything that it moved.
	fail = "fail"
	// lose: of everything that it moved, one unit is missing.
	lose = "lose"
	// invent: of everything that it moved, there is one unit more.
	invent = "invent"
	// swap: what it moved for one consumer is allocated to another; the sums over all consumers are
	// right.
	swap = "swap"
	// forget: consumers of which it moved something are missing.
	forget = "forget"
	// crowd: everything moves to one place, whether it fits or not.
	crowd = "crowd"
	// Ignore: it acts as a release that knows the configured tree only: it needs no reshape, and
	// keeps unknown providers.
	Ignore = "ignore"
	// Repeat: it needs a reshape whenever it gets no allocations.
	Repeat = "repeat"
)

// Reshapes are the values of Config.Reshape: none first, then each fault.
var Reshapes = []string{"", Again, fail, lose, invent, swap, forget, crowd, Ignore, Repeat}

// AfterReshape applies the configured fault to the result of a reshape, which made these moves, and
// returns it. It edits the allocations.
//
// Errors: a [*plugins.ReshapeFailed] where that is the fault.
func (c Config) AfterReshape(after providertree.Allocations, moves plugins.Moves) (providertree.Allocations, error) {
	add := func(consumer string, at plugins.Place, n int64) {
		if amounts := after[consumer].Resources[at.Provider]; amounts != nil {
			if amounts[at.Class] += n; amounts[at.Class] == 0 {
				delete(amounts, at.Class)
			}
			if len(amounts) == 0 {
				delete(after[consumer].Resources, at.Provider)
			}
		}
	}
	failed := &plugins.ReshapeFailed{Reason: "it is configured to fail"}
	for i, m := range moves {
		switch c.Reshape {
		case fail:
			failed.Violations = append(failed.Violations,
				plugins.Violation{Consumer: m.Consumer,
					Provider: m.From.Provider, Class: m.From.Class, Problem: "is to fail"})
		case lose:
			add(m.Consumer, m.To, -1)
		case invent:
			add(m.Consumer, m.To, 1)
		case swap:
			next := moves[(i+1)%len(moves)]
			if after[next.Consumer].Resources[m.To.Provider] == nil {
				after[next.Consumer].Resources[m.To.Provider] = map[string]int64{}
			}
			add(m.Consumer, m.To, -m.Amount)
			add(next.Consumer, m.To, m.Amount)
		case forget:
			delete(after, m.Consumer)
		case crowd:
			add(m.Consumer, m.To, -m.Amount)
			to := moves[0].To
			if after[m.Consumer].Resources[to.Provider] == nil {
				after[m.Consumer].Resources[to.Provider] = map[string]int64{}
			}
			add(m.Consumer, plugins.Place{Provider: to.Provider, Class: m.To.Class}, m.Amount)
		}
	}
	if c.Reshape == fail {
		return nil, failed
	}
	return after, nil
}
