// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
)

// rounds is how often each operation is measured on both services in turn, so that other programs
// on the machine slow both.
const rounds = 3

// optimum measures ours beside a bare server that answers the same requests with the same bytes.
func optimum(ctx context.Context, s settings) (err error) {
	random := rand.New(rand.NewPCG(1, 2))
	data := newNested(random, s.trees)
	ours, err := startOurs(ctx, s.binary, filepath.Join(s.state, "ours"), nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ours.Close()) }()
	say("loading ours with %d trees of 7", s.trees)
	if err := data.load(ctx, NewClient(ours.URL, several)); err != nil {
		return err
	}
	ops := data.optimumOperations()
	answers := newRecording(&http.Transport{MaxIdleConnsPerHost: several, DisableCompression: true})
	c := NewClientOver(answers, ours.URL)
	if _, err := c.Send(ctx, http.MethodGet, "/", nil); err != nil { // which shows that a server answers
		return err
	}
	for _, op := range ops {
		if err := record(ctx, c, op); err != nil {
			return fmt.Errorf("record the answers of %s: %w", op.name, err)
		}
	}
	bare, err := startBare(ctx, filepath.Join(s.state, "bare"), answers)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bare.Close()) }()
	one := table{head: []string{"operation, 1 client", "bytes", "bare: CPU ms", "ours: CPU ms", "ratio", "bare: p50 ms",
		"p99", "ours: p50 ms", "p99"}}
	many := table{head: []string{fmt.Sprintf("operation, %d clients", several), "bare: CPU ms", "ours: CPU ms", "ratio",
		"bare: a second", "ours: a second", "ours: refused"}}
	for _, op := range ops {
		if s.only != nil && !s.only.MatchString(op.name) {
			continue
		}
		theirs, mine, err := s.inTurn(ctx, bare, ours, op, 1)
		if err != nil {
			return err
		}
		one.add(op.name, fmt.Sprint(mine.bytesEach()), ms(theirs.cpuEach()), ms(mine.cpuEach()), ratio(mine, theirs),
			ms(theirs.at(50)), ms(theirs.at(99)), ms(mine.at(50)), ms(mine.at(99)))
		if op.workers < 2 {
			continue
		}
		if theirs, mine, err = s.inTurn(ctx, bare, ours, op, op.workers); err != nil {
			return err
		}
		many.add(op.name, ms(theirs.cpuEach()), ms(mine.cpuEach()), ratio(mine, theirs), rate(theirs.rate()),
			rate(mine.rate()), errorsOf(mine))
	}
	one.print()
	many.print()
	return nil
}

// record sends the requests of an operation once for each worker, and those of a reshape there and
// back.
func record(ctx context.Context, c *Client, op operation) error {
	for worker := range max(op.workers, 1) {
		st, err := op.begin(ctx, c, worker)
		if err != nil {
			return err
		}
		for range 2 {
			if st.prepare != nil {
				if err := st.prepare(ctx); err != nil {
					return err
				}
			}
			if _, err := st.do(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// inTurn measures an operation on both services in turn.
func (s *settings) inTurn(
	ctx context.Context, bare, ours *peer, op operation, workers int,
) (theirs, mine *sample, err error) {
	theirs, mine = &sample{refused: map[int]int{}}, &sample{refused: map[int]int{}}
	say("%s, %d clients", op.name, workers)
	for range rounds {
		for _, side := range []struct {
			service *peer
			sum     *sample
		}{{bare, theirs}, {ours, mine}} {
			part, err := measure(ctx, side.service, op, workers, 1, s.atLeast/rounds)
			if err != nil {
				return nil, nil, err
			}
			side.sum.join(part)
		}
	}
	return theirs, mine, nil
}

// ratio is what ours costs more than the other.
func ratio(ours, other *sample) string {
	if other.cpuEach() == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", float64(ours.cpuEach())/float64(other.cpuEach()))
}

// smallReads are the requests for one provider and for the usages of a project.
func (d *nestedData) smallReads() []operation {
	get := func(name string, path func(t *Tree) string) operation {
		return operation{name: name, workers: several,
			alone: true, begin: func(_ context.Context, c *Client, worker int) (step, error) {
				n := worker
				return plain(func(ctx context.Context) (int, error) {
					n += several
					answer, err := c.Send(ctx, http.MethodGet, path(&d.trees[n%len(d.trees)]), nil)
					return len(answer), err
				}), nil
			}}
	}
	return []operation{
		get("GET provider", func(t *Tree) string { return "/resource_providers/" + t.Root }),
		get("GET inventories", func(t *Tree) string {
			return "/resource_providers/" +
				t.NUMA[1].UUID + "/inventories"
		}),
		get("GET usages of a provider",
			func(t *Tree) string { return "/resource_providers/" + t.NUMA[1].UUID + "/usages" }),
		get("GET usages of a project", func(*Tree) string { return "/usages?project_id=" + projectID }),
	}
}

// optimumOperations are what a bare server and ours are compared by.
func (d *nestedData) optimumOperations() []operation {
	return append(d.smallReads(),
		candidates("candidates, nested", NestedQuery, 1, 500, 0),
		candidates("candidates, nested", NestedQuery, 10, 500, 0),
		candidates("candidates, nested", NestedQuery, 100, 200, 0),
		candidates("candidates, nested", NestedQuery, 1000, 50, 0),
		candidates("candidates, nested", NestedQuery, 0, 20, 0),
		d.inventoryWrites(), d.claimsAlone(), d.reshapes(0, reshaped[0]), d.reshapes(1, reshaped[1]))
}
