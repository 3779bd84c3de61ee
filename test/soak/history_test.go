// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// storm is many clients that read and write a few trees at the same time, and the history of what
// they were answered.
type storm struct {
	start time.Time
	// acknowledged counts the writes that were answered with success; enough is closed when there
	// are target of them.
	acknowledged, target atomic.Int64
	enough               chan struct{}

	mu      sync.Mutex
	history map[int][]*event // by tree
	// unsettled counts the writes whose outcome is not known, by tree.
	unsettled map[int]int
	errs      []error
}

// event is a request with its times since the storm's start.
type event struct {
	op           op
	answer       answer
	client       int
	call, finish int64
	settled      bool // an unknown one has happened at finish, or never will
}

func newStorm() *storm {
	return &storm{start: time.Now(), enough: make(chan struct{}), history: map[int][]*event{}, unsettled: map[int]int{}}
}

func (s *storm) now() int64 { return int64(time.Since(s.start)) }

// do makes one request and notes it.
func (s *storm) do(ctx context.Context, number int, c *client, o op) answer {
	e := &event{op: o, client: number, call: s.now()}
	a, err := c.do(ctx, o)
	e.answer, e.finish = a, s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.errs = append(s.errs, err)
	}
	if o.reads() && a.unknown {
		return a // a read without an answer says nothing
	}
	s.history[o.tree] = append(s.history[o.tree], e)
	if a.unknown {
		s.unsettled[o.tree]++
	}
	if !o.reads() && !a.unknown && !a.later && a.status < 300 && s.acknowledged.Add(1) == s.target.Load() {
		close(s.enough)
	}
	return a
}

// blow runs clientsPerTree clients for each tree, each on one of the servers, until the context
// ends or most requests each were made. A client whose server has ended ends.
func (s *storm) blow(
	ctx context.Context, seed uint64, trees map[int]*forest, clientsPerTree, most int, servers ...*client,
) {
	var wg sync.WaitGroup
	number := 0
	for tree, state := range trees {
		for range clientsPerTree {
			number++
			me, c := number, servers[number%len(servers)]
			g := &guess{state, newDice(seed, uint64(tree*1000+me)), tree}
			wg.Go(func() {
				for range most {
					if a := s.step(ctx, me, c, g, g.next()); a.status == 0 || ctx.Err() != nil {
						return
					}
				}
			})
		}
	}
	wg.Wait()
}

// step has a client make a request, and learn from the answer.
func (s *storm) step(ctx context.Context, number int, c *client, g *guess, o op) answer {
	a := s.do(ctx, number, c, o)
	if err := g.learn(o, a); err != nil {
		s.mu.Lock()
		s.errs = append(s.errs, err)
		s.mu.Unlock()
	}
	return a
}

// settle records when the server had ended: requests whose outcome is not known were done by then,
// or never.
func (s *storm) settle(gone int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, events := range s.history {
		for _, e := range events {
			if e.answer.unknown && !e.settled {
				e.finish, e.settled = max(e.call, gone), true
			}
		}
	}
	clear(s.unsettled)
}

// maxUnsettled is how many writes about a tree can be without a known outcome before its clients
// only read: the search for an order takes twice as long with each.
const maxUnsettled = 4

// crowded says that there are so many.
func (s *storm) crowded(tree int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unsettled[tree] >= maxUnsettled
}

// tally adds up the answers: how many requests of each kind were answered how.
func (s *storm) tally(into map[string]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	into["storms"]++
	for _, events := range s.history {
		for _, e := range events {
			into["requests"]++
			switch a := e.answer; {
			case a.unknown && a.status != 0:
				into["outcome not known"]++
			case a.later && a.status == 0:
				into["not connected"]++
			case a.unknown:
				into["without an answer"]++
			case a.later:
				into["refused for now"]++
			case e.op.reads():
				into["reads"]++
			case a.status < 300:
				into[string(e.op.kind)+" done"]++
			default:
				into[string(e.op.kind)+" "+a.code]++
			}
		}
	}
}

// readAll reads everything about a tree, as part of the history, and returns it.
func (s *storm) readAll(t *testing.T, c *client, tree int) *forest {
	t.Helper()
	return s.readTree(t, tree, func(o op) answer { return s.do(t.Context(), 0, c, o) })
}

// readTree is readAll with another way to ask.
func (s *storm) readTree(t *testing.T, tree int, ask func(op) answer) *forest {
	t.Helper()
	g := &guess{forest: newForest(tree), tree: tree}
	read := func(k kind, subject string) {
		o := op{kind: k, tree: tree, subject: subject}
		a := ask(o)
		if a.status != 200 {
			t.Fatalf("%s %s: %+v", k, subject, a)
		}
		check(t, g.learn(o, a))
	}
	for n := range consumersPerTree {
		read(getConsumer, consumerUUID(tree, n))
	}
	for n := range providersPerTree {
		read(getInventories, providerUUID(tree, n))
		read(getHolders, providerUUID(tree, n))
		read(getUsages, providerUUID(tree, n))
	}
	read(getTree, providerUUID(tree, 0))
	read(getProject, project(tree))
	return g.forest
}

// checkTime is when the search for an order is given up; it takes milliseconds, and minutes where
// the outcome of many requests is not known.
const checkTime = 10 * time.Minute

// judge reports whether each history has an order, from the given states; draw writes a picture of
// one without, and returns its file.
func (s *storm) judge(from map[int]*forest) (result porcupine.CheckResult, draw func() string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for tree, events := range s.history {
		history := make([]porcupine.Operation, len(events))
		for i, e := range events {
			history[i] = porcupine.Operation{ClientId: e.client, Input: e.op, Output: e.answer,
				Call: e.call, Return: e.finish}
		}
		model := sequential(from[tree])
		result, info := porcupine.CheckOperationsVerbose(model, history, checkTime)
		if result == porcupine.Ok {
			continue
		}
		return result, func() string {
			where := "could not be drawn"
			if f, err := os.CreateTemp("", "history-*.html"); err == nil {
				if err = porcupine.Visualize(model, info, f); err == nil {
					where = f.Name()
				}
				_ = f.Close() // a picture that is cut short shows that by itself
			}
			return fmt.Sprintf("the %d requests about tree %d: %s; picture: %s", len(events), tree, result, where)
		}
	}
	return porcupine.Ok, nil
}

// linearizable fails the test when there is no order.
func (s *storm) linearizable(t *testing.T, from map[int]*forest) {
	t.Helper()
	for _, err := range s.errs {
		t.Error(err)
	}
	if result, draw := s.judge(from); result != porcupine.Ok {
		t.Fatal("no order of the requests explains the answers: " + draw())
	}
}

// sequential is the model, from a state on. A request without an answer was done, or was not.
func sequential(from *forest) porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []any { return []any{from} },
		Step: func(state, input, output any) []any {
			f, a := state.(*forest), output.(answer)
			if a.later {
				return []any{f}
			}
			next, want := apply(f, input.(op))
			switch {
			case a.unknown && next == f:
				return []any{f}
			case a.unknown:
				return []any{f, next}
			case a == want:
				return []any{next}
			}
			return nil
		},
		Equal: func(a, b any) bool { return a == b || a.(*forest).equal(b.(*forest)) },
		DescribeOperation: func(input, output any) string {
			o := input.(op)
			return fmt.Sprintf("%s %s %+v %+v -> %+v", o.kind, o.subject, o.offers, o.claims, output)
		},
		DescribeState: func(state any) string { return fmt.Sprintf("%+v", state) },
	}
	return m.ToModel()
}

// rounds yields at least short numbers, few of them in the brief run on a server, and goes on until
// the time of SOAK, such as 10m, is over.
func rounds(t testing.TB, short int) func(yield func(int) bool) {
	if dbservers.InBrief(t) {
		short = min(short, 2)
	}
	long := testproc.Try(time.ParseDuration(cmp.Or(os.Getenv("SOAK"), "0s"))).Or(t)
	end := time.Now().Add(long)
	return func(yield func(int) bool) {
		for n := 0; n < short || time.Now().Before(end); n++ {
			if !yield(n) {
				return
			}
		}
	}
}

// newDice draws what follows from a seed, and is different for each number.
func newDice(seed, number uint64) *rand.Rand {
	return rand.New(rand.NewPCG(seed, number))
}
