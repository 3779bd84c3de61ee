// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Clients and limits that contend measures.
var (
	contenders      = []int{1, 4, 16}
	contendedLimits = []int{1, 10, 100}
)

// contend counts the claims that are refused because another client has claimed the same host
// meanwhile. Each flat host can serve one claim; the clients ask for candidates and claim the
// first, until three quarters of the hosts are claimed.
func contend(ctx context.Context, s settings) error {
	random := rand.New(rand.NewPCG(1, 2))
	hosts := make([]string, s.trees)
	for i := range hosts {
		hosts[i] = NewUUID(random)
	}
	p, err := startPair(ctx, s, "contend", func(ctx context.Context, c *Client) error {
		return inParallel(ctx, hosts, func(ctx context.Context, id string) error { return LoadFlat(ctx, c, id) })
	})
	if err != nil {
		return err
	}
	t := table{head: []string{"clients", "limit", "Placement: 409", "ours: 409",
		"Placement: claims a second", "ours: claims a second"}}
	err = func() error {
		for _, clients := range contenders {
			for _, limit := range contendedLimits {
				cells := []string{fmt.Sprint(clients), fmt.Sprint(limit)}
				var rates []string
				for _, service := range []*peer{p.theirs, p.ours} {
					if service == nil {
						cells, rates = append(cells, "-"), append(rates, "-")
						continue
					}
					say("%d clients, limit=%d, %s", clients, limit, service.Name)
					c, err := contention(ctx, NewClient(service.URL, clients), clients, limit, len(hosts)*3/4)
					if err != nil {
						return fmt.Errorf("%s: %w", service.Name, err)
					}
					cells = append(cells, fmt.Sprintf("%d of %d", c.refused, c.claimed+c.refused))
					rates = append(rates, rate(float64(c.claimed)/c.wall.Seconds()))
				}
				t.add(append(cells, rates...)...)
			}
		}
		return nil
	}()
	if err := errors.Join(err, p.close()); err != nil {
		return err
	}
	t.print()
	return nil
}

// contended is what came of the claims.
type contended struct {
	claimed, refused int
	wall             time.Duration
}

// contention has clients claim hosts until so many are claimed, and gives them up again.
func contention(ctx context.Context, c *Client, clients, limit, claims int) (out contended, err error) {
	claimers := make([]*Claimer, clients)
	failures := make([]error, clients)
	var left, refused atomic.Int64
	left.Store(int64(claims))
	begin := time.Now()
	var working sync.WaitGroup
	for i := range claimers {
		claimers[i] = NewClaimer(c, uint64(i))
		working.Go(func() {
			for left.Add(-1) >= 0 {
				claimed, err := claimers[i].ClaimFirst(ctx, limit)
				if err != nil {
					failures[i] = err
					return
				}
				if !claimed {
					refused.Add(1)
					left.Add(1)
				}
			}
		})
	}
	working.Wait()
	out = contended{claimed: claims, refused: int(refused.Load()), wall: time.Since(begin)}
	for _, claimer := range claimers {
		failures = append(failures, claimer.GiveUp(ctx))
	}
	return out, errors.Join(failures...)
}
