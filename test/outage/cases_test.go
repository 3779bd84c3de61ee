// SPDX-License-Identifier: Apache-2.0

package outage

import (
	"fmt"
	"sync"
	"testing"
)

// aCase is one of the cases of the specification.
type aCase struct {
	number int
	name   string
	run    func(t *testing.T, w *world)
}

// lane are cases that share a world and run one after the other, in their order: later ones may
// find what earlier ones changed, and each can be run alone. Lanes run beside each other.
type lane struct {
	build func(t *testing.T) *world
	cases []aCase
}

// lanes are all of them, in the order in which they begin: the longest first.
var lanes = []lane{hangLane, outageLane, agentLane, markerLane, bootLane, cellsLane, migrationLane, deleteLane}

// atOnce is how many lanes run at the same time.
const atOnce = 3

// TestCases are the cases of "Handling a down cell", by their numbers.
func TestCases(t *testing.T) {
	slots := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for _, l := range lanes {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			l.run(t)
		})
	}
	all.Wait()
}

// run runs the cases of a lane. The world is made by the first of them that is not left out.
func (l lane) run(t *testing.T) {
	var w *world
	failed := false
	defer func() {
		if w != nil {
			w.close(t, failed)
		}
	}()
	broken := false
	for _, c := range l.cases {
		ok := t.Run(fmt.Sprintf("%02d_%s", c.number, c.name), func(t *testing.T) {
			switch {
			case broken:
				t.Fatal("the world of this case could not be made: see the first case that failed")
			case w == nil:
				broken = true
				w = l.build(t)
				broken = false
			}
			c.run(t, w)
		})
		failed = failed || !ok
	}
	if w != nil {
		failed = !t.Run("hosts", w.soundly) || failed // what they saw is of no single case
	}
}

// TestNoCaseIsMissing: each number is there.
func TestNoCaseIsMissing(t *testing.T) {
	const last = 64
	there := map[int]bool{}
	for _, l := range lanes {
		for _, c := range l.cases {
			there[c.number] = true
			if c.number < 1 || c.number > last {
				t.Errorf("there is no case %d", c.number)
			}
		}
	}
	for n := range last {
		if !there[n+1] {
			t.Errorf("case %d is missing", n+1)
		}
	}
}
