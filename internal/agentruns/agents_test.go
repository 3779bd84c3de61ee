// SPDX-License-Identifier: Apache-2.0

package agentruns

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// network is a host whose agents start, die and send reports that arrive whenever they arrive, and
// a server that judges them. Time is virtual.
type network struct {
	now      time.Time
	lastSeen int64
	// knowsLast: the server knows when the host was seen last, beside its agents.
	knowsLast bool
	agents    Agents
	alive     map[string]int64 // the last turn that each was answered
	started   int
	flying    []Report // sent, and not arrived
}

func newNetwork() *network {
	return &network{now: time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC), alive: map[string]int64{}}
}

// window is how long an agent counts.
const window = 5 * time.Minute

func (n *network) start() string {
	n.started++
	token := fmt.Sprint("t", n.started)
	n.alive[token] = 0
	return token
}

func (n *network) send(token string, stopping bool) {
	n.flying = append(n.flying,
		Report{Process: &Process{Token: token}, Turn: n.alive[token], Stopping: stopping})
}

// arrive has one of the reports reach the server, and its answer the agent, if that lives and the
// answer is not lost.
func (n *network) arrive(i int, lost bool) {
	r := n.flying[i]
	n.flying = append(n.flying[:i:i], n.flying[i+1:]...)
	n.agents.Changed, n.agents.Gone = false, nil
	if n.knowsLast {
		r.LastSeen = n.lastSeen
	}
	n.agents.Add(r, n.now, window)
	n.lastSeen = n.now.UnixMicro()
	if _, lives := n.alive[r.Process.Token]; lives && !lost && !r.Stopping {
		n.alive[r.Process.Token] = n.agents.Turn
	}
}

// TestOneAgentAtATimeIsNeverTwo: whatever is restarted, killed, delayed, lost, repeated and out of
// order, as long as no two processes live at the same time.
func TestOneAgentAtATimeIsNeverTwo(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rapid.Check(t, func(t *rapid.T) {
		n := newNetwork()
		n.knowsLast = rapid.Bool().Draw(t, "knows last")
		current := n.start()
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0, 1:
				n.send(current, false)
			case 2, 3:
				if len(n.flying) > 0 {
					n.arrive(rapid.IntRange(0, len(n.flying)-1).Draw(t, "which"), rapid.Bool().Draw(t, "lost"))
				}
			case 4:
				n.now = n.now.Add(time.Duration(rapid.IntRange(0, 400).Draw(t, "seconds")) * time.Second)
			case 5:
				if rapid.Bool().Draw(t, "in order") {
					n.send(current, true)
				}
				delete(n.alive, current)
				current = n.start()
			}
			if n.agents.Until != 0 {
				t.Fatalf("two agents are seen where one lives at a time: %+v", n.agents)
			}
		}
	})
}

// TestTwoLiveAgentsAreFound: as soon as each has had an answer since the later one came, and as
// long as both report, whatever else was there before.
func TestTwoLiveAgentsAreFound(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rapid.Check(t, func(t *rapid.T) {
		n := newNetwork()
		n.knowsLast = rapid.Bool().Draw(t, "knows last")
		for range rapid.IntRange(0, 12).Draw(t, "dead") { // a crash loop
			dead := n.start()
			for range rapid.IntRange(1, 3).Draw(t, "reports") {
				n.send(dead, false)
				n.arrive(len(n.flying)-1, false)
			}
			delete(n.alive, dead)
		}
		agents := []string{n.start(), n.start()}
		if rapid.Bool().Draw(t, "three") {
			agents = append(agents, n.start())
		}
		for round := range 20 {
			for _, i := range rapid.Permutation(agents).Draw(t, "order") {
				n.send(i, false)
				n.arrive(len(n.flying)-1, false)
			}
			n.now = n.now.Add(10 * time.Second)
			if is := HasSeveral(n.agents.Until, n.now, window); !is && round >= 2 {
				t.Fatalf("round %d: not found: %+v", round, n.agents)
			}
		}
		for _, one := range agents[1:] { // one is left
			delete(n.alive, one)
		}
		for range 31 {
			n.send(agents[0], false)
			n.arrive(len(n.flying)-1, false)
			n.now = n.now.Add(10 * time.Second)
		}
		if HasSeveral(n.agents.Until, n.now, window) {
			t.Fatalf("it does not end: %+v", n.agents)
		}
		if len(n.agents.All) > maxAgents {
			t.Fatalf("%d agents are remembered", len(n.agents.All))
		}
	})
}

// TestAgentProcessForPeople: where an agent reports from, over a socket without an address, too.
func TestAgentProcessForPeople(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for address, want := range map[string]string{
		"":          "one that started at 2026-11-23T12:00:00Z (boot id b, machine unknown)",
		"192.0.2.8": "one that started at 2026-11-23T12:00:00Z and reports from 192.0.2.8 (boot id b, machine unknown)",
		"@": "one that started at 2026-11-23T12:00:00Z and reports over a unix socket (boot id b, " +
			"machine unknown)",
	} {
		got := Process{Boot: "b", Started: time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC),
			Address: address}.String()
		testproc.Equal(t, got, want, "%q: %s", address)
	}
}
