// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
)

// nestedData are trees, and hosts to reshape.
type nestedData struct {
	trees   []Tree
	reshape []*ReshapeHost
}

// reshaped are the guests of the hosts to reshape.
var reshaped = []int{100, 1000}

func newNested(random *rand.Rand, trees int) *nestedData {
	d := &nestedData{}
	for range trees {
		d.trees = append(d.trees, NewTree(random, 2))
	}
	for _, guests := range reshaped {
		d.reshape = append(d.reshape, NewReshapeHost(random, guests))
	}
	return d
}

func (d *nestedData) load(ctx context.Context, c *Client) error {
	for _, h := range d.reshape {
		if err := h.Load(ctx, c); err != nil {
			return err
		}
	}
	return inParallel(ctx, d.trees, func(ctx context.Context, t Tree) error { return t.Load(ctx, c) })
}

// plain is an operation without preparations.
func plain(do func(context.Context) (int, error)) step { return step{do: do} }

func candidates(name, query string, limit, ours, theirs int) operation {
	if name += ", no limit"; limit > 0 {
		name = fmt.Sprintf("%slimit=%d", name[:len(name)-len("no limit")], limit)
	}
	return operation{name: name, workers: several, alone: true, ours: ours, theirs: theirs,
		begin: func(_ context.Context, c *Client, _ int) (step, error) {
			return plain(Candidates(c, query, limit)), nil
		}}
}

// claims asks for candidates, claims one of them, and gives it up again.
func claims(name, query string, limit, ours, theirs int) operation {
	return operation{name: fmt.Sprintf("%s: GET candidates limit=%d, PUT and DELETE allocations, %d clients",
		name, limit, several),
		workers: several, ours: ours, theirs: theirs,
		begin: func(_ context.Context, c *Client, worker int) (step, error) {
			claimer := NewClaimer(c, uint64(worker))
			return plain(func(ctx context.Context) (int, error) {
				n, err := claimer.Ask(ctx, query, limit)
				if err != nil {
					return n, err
				}
				return n, claimer.Claim(ctx)
			}), nil
		}}
}

func flatOperations() []operation {
	return []operation{
		candidates("candidates, flat", FlatQuery, 0, 50, 3),
		candidates("candidates, flat", FlatQuery, 10, 500, 3),
		claims("claim, flat", FlatQuery, 100, 500, 16),
	}
}

func (d *nestedData) operations() []operation {
	ops := append(d.candidates(),
		claims("claim, nested", NestedQuery, 100, 300, 8),
		d.claimsAlone(), d.inventoryWrites(), d.refreshes(), d.loads(),
	)
	for i, guests := range reshaped {
		ops = append(ops, d.reshapes(i, guests))
	}
	return ops
}

// inventoryWrites writes to hosts that each worker has for itself.
func (d *nestedData) inventoryWrites() operation {
	return operation{name: "PUT inventories", workers: several, alone: true, ours: 1000, theirs: 50,
		begin: func(ctx context.Context, c *Client, worker int) (step, error) {
			var writers []*InventoryWriter
			for i := worker; i < len(d.trees) && len(writers) < 16; i += mostClients {
				w, err := NewInventoryWriter(ctx, c, d.trees[i].Root)
				if err != nil {
					return step{}, err
				}
				writers = append(writers, w)
			}
			n := 0
			return plain(func(ctx context.Context) (int, error) {
				n++
				return writers[n%len(writers)].Write(ctx)
			}), nil
		}}
}

func (d *nestedData) refreshes() operation {
	return operation{name: "refresh of a provider: 4 GETs", workers: several, alone: true, ours: 1000, theirs: 30,
		begin: func(_ context.Context, c *Client, worker int) (step, error) {
			n := worker
			return plain(func(ctx context.Context) (int, error) {
				n += several
				tree := d.trees[n%len(d.trees)]
				return Refresh(ctx, c, tree.NUMA[1].UUID)
			}), nil
		}}
}

// reshapes goes there and back: each service begins with all guests on the root.
func (d *nestedData) reshapes(i, guests int) operation {
	return operation{name: fmt.Sprintf("reshape %d consumers to 8 children", guests), alone: true,
		ours: 10, theirs: max(1, 300/guests),
		begin: func(_ context.Context, c *Client, _ int) (step, error) {
			host := *d.reshape[i]
			var body []byte
			return step{
				prepare: func(ctx context.Context) (err error) {
					body, err = host.Next(ctx, c)
					return err
				},
				do: func(ctx context.Context) (int, error) { return len(body), host.Reshape(ctx, c, body) },
			}, nil
		}}
}

// candidates is the nested-perfload job's query, with less and less to answer.
func (d *nestedData) candidates() []operation {
	return []operation{
		candidates("candidates, nested", NestedQuery, 0, 30, 3),
		candidates("candidates, nested", NestedQuery, 1000, 50, 3),
		candidates("candidates, nested", NestedQuery, 100, 200, 3),
		candidates("candidates, nested", NestedQuery, 10, 500, 3),
	}
}

// claimsAlone claims without asking for candidates before.
func (d *nestedData) claimsAlone() operation {
	return operation{name: "claim, nested: PUT and DELETE allocations alone", workers: several,
		alone: true, ours: 500, theirs: 30,
		begin: func(_ context.Context, c *Client, worker int) (step, error) {
			claimer := NewClaimer(c, uint64(worker))
			err := claimer.Take(d.trees)
			return plain(func(ctx context.Context) (int, error) { return 0, claimer.Claim(ctx) }), err
		}}
}

// loads adds trees that are not there yet.
func (d *nestedData) loads() operation {
	return operation{name: fmt.Sprintf("load a tree: %d requests", RequestsPerTree), workers: several,
		alone: true, ours: 30, theirs: 4,
		begin: func(_ context.Context, c *Client, worker int) (step, error) {
			random := rand.New(rand.NewPCG(rand.Uint64(), uint64(worker)))
			return plain(func(ctx context.Context) (int, error) { return 0, NewTree(random, 2).Load(ctx, c) }), nil
		}}
}

// replacements replace what each worker's consumer holds, with one more gigabyte of disk or one
// less.
func (d *nestedData) replacements() operation {
	return operation{name: "PUT allocations, replacing", workers: several, alone: true, ours: 500, theirs: 30,
		begin: func(ctx context.Context, c *Client, worker int) (step, error) {
			r, err := NewReplacer(ctx, c, fmt.Sprintf("4e91ace0-0000-4000-8000-%012d", worker),
				d.trees[worker%len(d.trees)])
			return plain(func(ctx context.Context) (int, error) { return 0, r.Replace(ctx) }), err
		}}
}
