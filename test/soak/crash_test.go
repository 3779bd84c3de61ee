// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// follows checks directly what the history proves as well: generations of providers only increase.
func (f *forest) follows(t *testing.T, before *forest) {
	t.Helper()
	for p, was := range before.providers {
		if is := f.providers[p]; is.generation < was.generation {
			t.Errorf("the generation of %s went from %d back to %d", p, was.generation, is.generation)
		}
	}
}

// addsUp checks directly that sums are right.
func (f *forest) addsUp(t *testing.T, c *client, tree int) {
	t.Helper()
	for p := range f.providers {
		usages := op{kind: getUsages, tree: tree, subject: p}
		a := testproc.Try(c.do(t.Context(), usages)).Or(t)
		testproc.Equal(t, a, f.read(usages), "usages of %s are %+v", p)
	}
}

// TestKillDuringStorm: the server is killed while clients write, again and again, and started again
// on the same database. Its answers then follow from what it acknowledged before; requests without
// an answer happened wholly or not at all.
func TestKillDuringStorm(t *testing.T) {
	testproc.Drawn(t, 2)
	testproc.Parallel(t, testproc.Light)
	at := onDatabase(t)
	dice := newDice(testproc.Seed(t), 0)
	server := start(t, nil, at...)
	c := server.quietly(t)
	state := plantAll(t, c, 1, 2, 3)
	counts := map[string]int{}
	for range rounds(t, 6) {
		s := newStorm()
		s.target.Store(1 + dice.Int64N(300))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.blow(ctx, dice.Uint64(), state, 4, 1<<20, c)
		}()
		select {
		case <-s.enough:
		case <-ended:
		}
		server.Kill()
		gone := s.now()
		<-ended
		stop()
		for range dice.IntN(3) { // killed while it starts, too
			starting := start(t, nil, at...)
			after := time.NewTimer(time.Duration(dice.Int64N(int64(60 * time.Millisecond))))
			served := make(chan struct{})
			go func() {
				defer close(served)
				starting.Serves(t)
			}()
			select {
			case <-after.C:
			case <-served:
			}
			starting.Kill()
			<-served
		}
		server = start(t, nil, at...)
		c = server.quietly(t)
		if dbservers.OnServer(t) {
			// A database server may have been late with the last COMMIT that it got. A change waits
			// for that.
			check(t, c.change(t.Context(), dice.Uint64()))
			gone = s.now()
		}
		s.settle(gone)
		next := map[int]*forest{}
		for tree := range state {
			next[tree] = s.readAll(t, c, tree)
			next[tree].follows(t, state[tree])
			next[tree].addsUp(t, c, tree)
		}
		s.linearizable(t, state)
		s.tally(counts)
		state = next
	}
	server.Stop(t)
	if alarms := server.alarms(); len(alarms) > 0 {
		t.Errorf("alarming: %q", alarms)
	}
	t.Log(counts)
	if counts["without an answer"] == 0 {
		t.Error("no request was under way when the server was killed: nothing was tested")
	}
}

// TestKillDuringStart: a server that is killed at any moment of its first start leaves nothing that
// makes a later start fail.
func TestKillDuringStart(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	check(t, binaries.Build()) // which is no part of a start
	began := time.Now()
	first := start(t, nil, onDatabase(t)...)
	first.Serving(t)
	whole := time.Since(began)
	first.Kill()
	const steps = 12
	for n := range rounds(t, steps) {
		at := onDatabase(t)
		// The kills are spread over the time that a start takes here.
		moment := time.NewTimer(whole * time.Duration(n%steps) / steps)
		p := start(t, nil, at...)
		<-moment.C
		p.Kill()
		again := start(t, nil, at...)
		c := again.quietly(t)
		check(t, c.plant(t.Context(), 1))
		again.Stop(t)
	}
}

// TestOnServers: the storms, briefly, on MariaDB and PostgreSQL.
func TestOnServers(t *testing.T) {
	dbservers.Brief(t, TestLinearizable, TestKillDuringStorm)
}
