// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
)

// several is how many workers there are where there is more than one.
const several = 8

// mostClients are the most workers of an operation.
const mostClients = 16

// pair is ours and OpenStack's with the same data; theirs is nil when ours is measured alone.
type pair struct {
	ours, theirs *peer
	server       *server // of the database of theirs
}

func (p *pair) close() error {
	err := p.ours.Close()
	if p.theirs != nil {
		err = errors.Join(err, p.theirs.Close())
	}
	if p.server != nil {
		err = errors.Join(err, p.server.Close())
	}
	return err
}

// startPair starts ours, loads it, and starts OpenStack's with the same rows.
func startPair(ctx context.Context, s settings, name string, load func(context.Context, *Client) error) (*pair, error) {
	ours, err := startOurs(ctx, s.binary, filepath.Join(s.state, name, "ours"), nil)
	if err != nil {
		return nil, err
	}
	p := &pair{ours: ours}
	say("%s: loading ours", name)
	if err := load(ctx, NewClient(ours.URL, several)); err != nil {
		return nil, errors.Join(err, p.close())
	}
	if s.upstream {
		say("%s: starting OpenStack's with the same rows", name)
		if p.server, err = startMariaDB(ctx); err == nil {
			p.theirs, err = startUpstream(ctx, filepath.Join(s.state, name, "theirs"), ours.Database, p.server)
		}
		if err != nil {
			return nil, errors.Join(err, p.close())
		}
	}
	return p, nil
}

// compare measures both services with the nested and the flat data set.
func compare(ctx context.Context, s settings) error {
	random := rand.New(rand.NewPCG(1, 2))
	nested := newNested(random, s.trees)
	flat := make([]string, s.trees)
	for i := range flat {
		flat[i] = NewUUID(random)
	}
	t := tables{
		one: table{head: []string{"operation", "Placement: CPU ms", "ours: CPU ms", "CPU ratio", "Placement: p50 ms",
			"p99", "ours: p50 ms", "p99"}},
		many: table{head: []string{
			fmt.Sprintf("operation, %d clients", several), "Placement: a second", "ours: a second", "Placement: bytes",
			"ours: bytes", "Placement: refused", "ours: refused",
		}},
	}
	memory := table{head: []string{"data", "Placement and MariaDB: PSS MiB", "RSS", "ours: PSS MiB", "RSS"}}
	for _, set := range []struct {
		dir, name string
		load      func(context.Context, *Client) error
		query     string
		ops       []operation
	}{
		{"nested", fmt.Sprintf("%d trees of 7", s.trees), nested.load, NestedQuery, nested.operations()},
		{"flat", fmt.Sprintf("%d flat hosts", s.trees), func(ctx context.Context, c *Client) error {
			return inParallel(ctx, flat, func(ctx context.Context, id string) error { return LoadFlat(ctx, c, id) })
		}, FlatQuery, flatOperations()},
	} {
		ops := slices.DeleteFunc(set.ops,
			func(op operation) bool { return s.only != nil && !s.only.MatchString(op.name) })
		if len(ops) == 0 {
			continue
		}
		p, err := startPair(ctx, s, set.dir, set.load)
		if err != nil {
			return err
		}
		if err = p.same(ctx, set.query); err == nil {
			err = p.compareAll(ctx, s, set.name, ops, &t, &memory)
		}
		if err = errors.Join(err, p.close()); err != nil {
			return err
		}
	}
	t.one.print()
	t.many.print()
	memory.print()
	return nil
}

// same checks that both services answer a query with as many candidates and summaries, and ours
// with some.
func (p *pair) same(ctx context.Context, query string) error {
	ours, err := CountCandidates(ctx, NewClient(p.ours.URL, 1), query)
	if err != nil {
		return err
	}
	if ours.Candidates == 0 {
		return fmt.Errorf("ours has no candidates for %s", query)
	}
	if p.theirs == nil {
		return nil
	}
	theirs, err := CountCandidates(ctx, NewClient(p.theirs.URL, 1), query)
	if err == nil && (ours.Candidates != theirs.Candidates || ours.Summaries != theirs.Summaries) {
		err = fmt.Errorf("ours answers with %d candidates and %d summaries, OpenStack's with %d and %d, to %s",
			ours.Candidates, ours.Summaries, theirs.Candidates, theirs.Summaries, query)
	}
	return err
}

func (p *pair) compareAll(
	ctx context.Context, s settings, name string, ops []operation, t *tables, memory *table,
) error {
	for _, op := range ops {
		var one, many [2]*sample
		for i, side := range []struct {
			service *peer
			least   int
		}{{p.theirs, op.theirs}, {p.ours, op.ours}} {
			var err error
			if one[i], many[i], err = s.samples(ctx, side.service, op, side.least); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		t.add(op.name, one, many)
	}
	cells := []string{name}
	for _, service := range []*peer{p.theirs, p.ours} {
		if service == nil {
			cells = append(cells, "-", "-")
			continue
		}
		m, err := service.Memory()
		if err != nil {
			return err
		}
		cells = append(cells, mib(m.PSS), mib(m.RSS))
	}
	memory.add(cells...)
	return nil
}

// samples measures an operation with one client and with several. What is not measured is empty; an
// operation that is never done alone has its sample with several clients in both places.
func (s *settings) samples(ctx context.Context, service *peer, op operation, least int) (one, many *sample, err error) {
	one, many = &sample{}, &sample{}
	if service == nil {
		return one, many, nil
	}
	say("%s, %s", op.name, service.Name)
	if op.alone {
		if one, err = measure(ctx, service, op, 1, least, s.atLeast); err != nil {
			return nil, nil, err
		}
	}
	if op.workers > 1 {
		if many, err = measure(ctx, service, op, op.workers, 2*least, s.atLeast); err != nil {
			return nil, nil, err
		}
	}
	if !op.alone {
		one = many
	}
	return one, many, nil
}

// tables are what compare prints of operations: with one client, and with several.
type tables struct{ one, many table }

// add takes the samples of Placement and of ours.
func (t *tables) add(name string, one, many [2]*sample) {
	theirs, ours := one[0], one[1]
	ratio := "-"
	if theirs.cpu > 0 && ours.cpu > 0 {
		ratio = fmt.Sprintf("%.0f", float64(theirs.cpuEach())/float64(ours.cpuEach()))
	}
	t.one.add(name, ms(theirs.cpuEach()), ms(ours.cpuEach()), ratio, ms(theirs.at(50)), ms(theirs.at(99)),
		ms(ours.at(50)), ms(ours.at(99)))
	if theirs, ours = many[0], many[1]; theirs.done+ours.done > 0 {
		t.many.add(name, rate(theirs.rate()), rate(ours.rate()), fmt.Sprint(theirs.bytesEach()),
			fmt.Sprint(ours.bytesEach()), errorsOf(theirs), errorsOf(ours))
	}
}

// inParallel does something with each item, a few at a time, and stops at the first error.
func inParallel[T any](ctx context.Context, items []T, do func(context.Context, T) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan T)
	var working sync.WaitGroup
	for range several {
		working.Go(func() {
			for item := range next {
				if ctx.Err() != nil {
					continue
				}
				if err := do(ctx, item); err != nil {
					cancel(err)
				}
			}
		})
	}
	for _, item := range items {
		next <- item
	}
	close(next)
	working.Wait()
	return context.Cause(ctx)
}
