// SPDX-License-Identifier: Apache-2.0

package celldb_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/serverstate"
	"github.com/compute-agent/compute-agent/internal/agentruns"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// clone is an agent that reports as host h1.
type clone struct {
	t     *testing.T
	s     *celldb.DB
	who   serverstate.Reporter
	token string
	turn  int64
}

func (c *clone) word(stopping bool) cellwire.HostReport {
	return cellwire.HostReport{
		Version: "1", Nodes: []cellwire.ReportedNode{{UUID: sid(1), Name: "n1"}}, Stopping: stopping, Turn: c.turn,
		Process: &agentruns.Process{Token: c.token, Boot: "boot-" + c.token, Machine: "machine", Started: start},
	}
}

// arrives has a report reach the cell, and the answer the agent.
func (c *clone) arrives(r cellwire.HostReport, m celldb.Moment) (cellwire.Service, []cellwire.NodeProblem) {
	c.t.Helper()
	service, problems, err := c.s.Report(ctx, c.who, r, m)
	testproc.Check(c.t, err)
	c.turn = service.Turn
	return service, problems
}

// beat is a heartbeat; it returns why the node gets no new servers.
func (c *clone) beat(m celldb.Moment) string {
	c.t.Helper()
	_, problems := c.arrives(c.word(false), m)
	for _, p := range problems {
		if p.Code == cellwire.NodeSeveralAgents && !p.Code.Refuses() {
			return p.Message
		}
	}
	return ""
}

func after(d time.Duration) celldb.Moment {
	return celldb.Moment{Now: moment.Now.Add(d), DownTime: moment.DownTime}
}

// twoAgents reports whether the host gets new servers, in all the ways in which that is asked.
func twoAgents(t *testing.T, s *celldb.DB, m celldb.Moment) bool {
	t.Helper()
	services := testproc.Try(s.Services(ctx, m)).Or(t)
	nodes := testproc.Try(s.ComputeNodes(ctx, false, m)).Or(t)
	server := building(int(m.Now.Unix() % 1_000_000))
	server.NodeUUID = sid(1)
	var refused *cellwire.Error
	_, err := s.Insert(ctx, server, m)
	is := errors.As(err, &refused) && refused.Code == cellwire.CodeContested
	if !is {
		testproc.Check(t, err)
		testproc.Check(t, s.Discard(ctx, server.UUID))
	}
	one := services[0]
	if one.SeveralAgents != is || (len(one.Contested) == 1) != is || (len(one.Agents) > 1) != is ||
		(len(nodes[0].Agents) > 1) != is || !one.Up {
		t.Errorf("a server is refused: %t; the service: %+v; the node: %+v", is, one, nodes[0])
	}
	return is
}

// TestTwoAgentsOfOneHost: they get no new servers from the time when both have shown that they
// live, and each learns of both; it ends when one says that it stops, or is not seen any more. With
// certificates, too: a copied disk has the key.
func TestTwoAgentsOfOneHost(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	onEach(t, func(t *testing.T, s *celldb.DB) {
		a := &clone{t: t, s: s, token: "a",
			who: serverstate.Reporter{Host: "h1", Auth: cellwire.HostAuthCertificate,
				Nodes: []string{sid(1)}, Address: "192.0.2.1"}}
		b := &clone{t: t, s: s, token: "b", who: a.who}
		b.who.Address = "192.0.2.2"
		testproc.Equal(t, a.beat(after(0)), "", "the first: %s")
		testproc.Equal(t, b.beat(after(3*time.Second)), "", "the second comes: %s")
		testproc.Equal(t, a.beat(after(10*time.Second)), "", "the first, which may be a late report: %s")
		testproc.Equal(t, b.beat(after(13*time.Second)), "", "the second got an answer: %s")
		if twoAgents(t, s, after(14*time.Second)) {
			t.Error("without proof")
		}
		for i, c := range []*clone{a, b, a, b} {
			why := c.beat(after(time.Duration(20+i) * time.Second))
			for _, part := range []string{"2 agents report as host h1", "192.0.2.1 (boot id boot-a",
				"192.0.2.2 (boot id boot-b"} {
				testproc.Contains(t, why, part, "heartbeat %d: %q", i)
			}
		}
		if !twoAgents(t, s, after(30*time.Second)) {
			t.Error("with proof")
		}

		// The one that came last stops: the host is not down.
		service, _ := b.arrives(b.word(true), after(31*time.Second))
		if service.SeveralAgents || twoAgents(t, s, after(32*time.Second)) {
			t.Errorf("after one has stopped: %+v", service)
		}
		testproc.Equal(t, a.beat(after(40*time.Second)), "", "the other one: %s")

		// It is started again, and then it is not seen any more.
		for i := range 4 {
			b.beat(after(time.Duration(50+10*i) * time.Second))
			a.beat(after(time.Duration(55+10*i) * time.Second))
		}
		seen := 80 * time.Second
		for at := seen + 5*time.Second; at < seen+5*time.Minute; at += 10 * time.Second {
			if a.beat(after(at)) == "" || !twoAgents(t, s, after(at)) {
				t.Fatalf("%v after it was seen last it counts as gone", at-seen)
			}
		}
		testproc.Equal(t, a.beat(after(seen+5*time.Minute+time.Second)), "", "five minutes after it was seen last: %s")
		if twoAgents(t, s, after(seen+5*time.Minute+time.Second)) {
			t.Error("it does not end")
		}
	})
}

// TestOneAgentIsNotTwo: restarts, kills, late reports and late last words of the process before.
func TestOneAgentIsNotTwo(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	onEach(t, func(t *testing.T, s *celldb.DB) {
		at := time.Duration(0)
		tick := func() celldb.Moment { at += time.Second; return after(at) }
		var late []cellwire.HostReport
		var last *clone
		for n := range 12 { // a crash loop, in which each word of a process may come after its end
			c := &clone{t: t, s: s, who: serverstate.Reporter{Host: "h1"}, token: string(rune('a' + n))}
			for range n % 4 {
				testproc.Equal(t, c.beat(tick()), "", "one at a time: %s")
				for _, r := range late {
					old := &clone{t: t, s: s, who: c.who}
					service, problems := old.arrives(r, tick())
					if len(problems) > 0 || service.SeveralAgents {
						t.Fatalf("a late report of %s: %+v", r.Process.Token, problems)
					}
				}
			}
			late, last = []cellwire.HostReport{c.word(false), c.word(false)}, c
		}
		for range 40 {
			testproc.Equal(t, last.beat(tick()), "", "the last one: %s")
		}
		if twoAgents(t, s, tick()) {
			t.Error("a host whose agent is restarted gets no new servers")
		}
		// The last word of a process comes after the first one of the next: the host is up.
		next := &clone{t: t, s: s, who: last.who, token: "next"}
		next.beat(tick())
		if service, _ := last.arrives(last.word(true), tick()); !service.Up {
			t.Error("a late last word marks the host down")
		}
		if service, _ := last.arrives(last.word(true), tick()); !service.Up {
			t.Error("a repeated one does")
		}
		if service, _ := next.arrives(next.word(true), tick()); service.Up {
			t.Error("its own last word does not")
		}
	})
}

// TestAClockThatWasWrongBlocksNoHost: proof that was found while the clock was a
// year ahead is not one.
func TestAClockThatWasWrongBlocksNoHost(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := fresh(t)
	a := &clone{t: t, s: s, token: "a", who: serverstate.Reporter{Host: "h1"}}
	b := &clone{t: t, s: s, token: "b", who: a.who}
	const year = 365 * 24 * time.Hour
	for i := range 4 {
		a.beat(after(year + time.Duration(i)*time.Second))
		b.beat(after(year + time.Duration(i)*time.Second))
	}
	testproc.Contains(t, a.beat(after(year+5*time.Second)), "2 agents", "the warning of a heartbeat: %q")
	b.turn = 0
	testproc.Equal(t, b.beat(after(0)), "", "a year before: %s")
	testproc.Equal(t, b.beat(after(10*time.Second)), "", "and on: %s")
	if twoAgents(t, s, after(11*time.Second)) {
		t.Error("the host gets no new servers for a year")
	}
}

// TestAgentsWithoutTokens: those of before turns report as ever, and what is no token is refused.
func TestAgentsWithoutTokens(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := fresh(t)
	a := &clone{t: t, s: s, token: "a", who: serverstate.Reporter{Host: "h1"}}
	for i := range 4 {
		a.beat(after(time.Duration(10*i) * time.Second))
		old := a.word(false)
		old.Process, old.Turn = nil, 0
		service, problems, err := s.Report(ctx, a.who, old, after(time.Duration(10*i+5)*time.Second))
		if err != nil || len(problems) > 0 || !service.Up || service.Turn < 1 {
			t.Errorf("the report of an older agent: got %+v, %v, %v, want the service up", service, problems, err)
		}
	}
	for _, bad := range []agentruns.Process{{}, {Token: strings.Repeat("x", 65)}, {Token: "a b"},
		{Token: "a", Boot: "\x00"}, {Token: "a", Machine: "ä"}} {
		r := a.word(false)
		r.Process = &bad
		var refused *cellwire.Error
		if _, _, err := s.Report(ctx, a.who, r, moment); !errors.As(err, &refused) || refused.Status != 400 {
			t.Errorf("the report of the process %+v: got %v, want 400", bad, err)
		}
	}
}
