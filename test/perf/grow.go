// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"time"
)

// growth is how much data ours is loaded with.
type growth struct {
	hosts, nodes, consumers int
}

// grow measures ours alone as the data grow in each direction: hosts, children of a host,
// consumers.
func grow(ctx context.Context, s settings) error {
	const otherHosts = 1000
	largest := slices.Max(s.hosts)
	var steps []growth
	for _, hosts := range s.hosts {
		steps = append(steps, growth{hosts, 2, 0})
	}
	some := min(otherHosts, largest)
	steps = append(steps, growth{some, 7, 0}, growth{some, 21, 0}, growth{largest, 2, s.consumers})

	t := table{head: []string{
		"hosts x providers", "consumers", "candidates: CPU ms, no limit", "limit=1000", "limit=100", "limit=10",
		"claim: PUT and DELETE", "PUT inventories", "4 GETs",
		"load: requests/s", "PSS MiB", "database MiB", "start s", "start: CPU s", "PSS MiB after",
	}}
	loaded := latencyTable()
	crowded := table{head: []string{"hosts x providers", "consumers", "operation", "clients", "p50 ms", "p99",
		"longest", "a second", "CPU ms", "refused"}}
	for i, g := range steps {
		if err := s.growTo(ctx, filepath.Join(s.state, fmt.Sprint(i)), g, g.hosts == largest, &t,
			&loaded, &crowded); err != nil {
			return err
		}
	}
	t.print()
	loaded.print()
	crowded.print()
	return nil
}

func (s *settings) growTo(
	ctx context.Context, dir string, g growth, isLargest bool, t, loaded, crowded *table,
) (err error) {
	name := fmt.Sprintf("%d x %d", g.hosts, 1+3*g.nodes)
	ours, err := startOurs(ctx, s.binary, dir, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ours.Close()) }()
	random := rand.New(rand.NewPCG(1, 2))
	data := &nestedData{}
	for range g.hosts {
		data.trees = append(data.trees, NewTree(random, g.nodes))
	}
	say("%s, %d consumers: loading", name, g.consumers)
	c := NewClient(ours.URL, several)
	begin := time.Now()
	if err := data.load(ctx, c); err != nil {
		return err
	}
	loading := float64(c.Requests()) / time.Since(begin).Seconds()
	consumers := make([]string, g.consumers)
	for i := range consumers {
		consumers[i] = NewUUID(random)
	}
	// On the disks, which the queries below can still be satisfied from.
	if err := LoadConsumers(ctx, c, consumers, func(i int) map[string]any {
		return map[string]any{data.trees[i%g.hosts].Root: map[string]any{"resources": map[string]any{"DISK_GB": 1}}}
	}); err != nil {
		return err
	}
	cells := []string{name, fmt.Sprint(g.consumers)}
	for _, op := range append(data.candidates(), data.claimsAlone(), data.inventoryWrites(), data.refreshes()) {
		if s.only != nil && !s.only.MatchString(op.name) {
			cells = append(cells, "-")
			continue
		}
		say("%s, %d consumers: %s", name, g.consumers, op.name)
		one, err := measure(ctx, ours, op, 1, op.ours, s.atLeast)
		if err != nil {
			return err
		}
		cells = append(cells, ms(one.cpuEach()))
	}
	if isLargest {
		if err := s.crowd(ctx, ours, data, name, g.consumers, crowded); err != nil {
			return err
		}
		if err := s.underWrites(ctx, ours, nil, data, name, g.consumers, loaded); err != nil {
			return err
		}
	}
	before, err := ours.Memory()
	if err != nil {
		return err
	}
	say("%s, %d consumers: starting again", name, g.consumers)
	if err := ours.Close(); err != nil {
		return err
	}
	size, err := ours.DatabaseSize()
	if err != nil {
		return err
	}
	again, err := startOurs(ctx, s.binary, dir, nil)
	if err != nil {
		return err
	}
	starting, err := again.CPU()
	after, err2 := again.Memory()
	if err = errors.Join(err, err2, again.Close()); err != nil {
		return err
	}
	t.add(append(cells, rate(loading), mib(before.PSS), mib(size), fmt.Sprintf("%.2f", again.Startup.Seconds()),
		fmt.Sprintf("%.2f", starting.Seconds()), mib(after.PSS))...)
	return nil
}

// crowd measures answers to one client and to several at once.
func (s *settings) crowd(
	ctx context.Context, ours *peer, data *nestedData, name string, consumers int, t *table,
) error {
	ops := append(data.candidates()[1:], claims("claim, nested", NestedQuery, 10, 300, 0),
		data.claimsAlone(), data.inventoryWrites())
	for _, op := range ops {
		for _, clients := range []int{1, op.workers} {
			if clients == 1 && !op.alone || s.only != nil && !s.only.MatchString(op.name) {
				continue
			}
			say("%s, %d consumers: %s, %d clients", name, consumers, op.name, clients)
			one, err := measure(ctx, ours, op, clients, op.ours, s.atLeast)
			if err != nil {
				return err
			}
			t.add(name, fmt.Sprint(consumers), op.name, fmt.Sprint(clients), ms(one.at(50)), ms(one.at(99)),
				ms(one.at(100)), rate(one.rate()), ms(one.cpuEach()), errorsOf(one))
		}
	}
	return nil
}
