// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"time"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// writesPerSecond go on while candidates are asked for, of so many at most.
const writesPerSecond = 100

var limitsUnderWrites = []int{10, 100, 1000}

func latencyTable() table {
	return table{head: []string{
		"hosts x providers", "consumers", "writes/s going on", "candidates", "answers", "p50 ms", "p99", "longest",
		"CPU: p50 ms", "p99", "bare: p50 ms", "p99",
	}}
}

// latency measures how long candidates take while others write, beside a bare server that answers
// with the same bytes: its p99 is what the machine makes of it.
func latency(ctx context.Context, s settings) (err error) {
	data := newNested(rand.New(rand.NewPCG(1, 2)), s.trees)
	ours, err := startOurs(ctx, s.binary, filepath.Join(s.state, "ours"), nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, ours.Close()) }()
	say("loading ours with %d trees of 7", s.trees)
	if err := data.load(ctx, NewClient(ours.URL, several)); err != nil {
		return err
	}
	answers := newRecording(&http.Transport{DisableCompression: true})
	c := NewClientOver(answers, ours.URL)
	if _, err := c.Send(ctx, http.MethodGet, "/", nil); err != nil {
		return err
	}
	for _, limit := range limitsUnderWrites {
		if _, err := Candidates(c, NestedQuery, limit)(ctx); err != nil {
			return err
		}
	}
	bare, err := startBare(ctx, filepath.Join(s.state, "bare"), answers)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bare.Close()) }()
	t := latencyTable()
	if err := s.underWrites(ctx, ours, bare, data, fmt.Sprintf("%d x 7", s.trees), 0, &t); err != nil {
		return err
	}
	t.print()
	return nil
}

// underWrites asks for candidates, one request after the other, while inventories are written at a
// steady rate; and a bare server for the same, unless it is nil.
func (s *settings) underWrites(
	ctx context.Context, ours, bare *peer, data *nestedData, name string, consumers int, t *table,
) error {
	for _, limit := range limitsUnderWrites {
		op := candidates("candidates, nested", NestedQuery, limit, 1000, 0)
		if s.only != nil && !s.only.MatchString(op.name) {
			continue
		}
		say("%s, %d consumers: %s while %d writes a second go on", name, consumers, op.name, writesPerSecond)
		stop, err := writeSteadily(ctx, ours, data)
		if err != nil {
			return err
		}
		var mine, theirs waits
		for range rounds {
			err = errors.Join(err, mine.ask(ctx, ours, limit, s.longer()/rounds))
			if bare != nil {
				err = errors.Join(err, theirs.ask(ctx, bare, limit, s.longer()/rounds))
			}
		}
		written, writeErr := stop()
		if err := errors.Join(err, writeErr); err != nil {
			return err
		}
		t.add(name, fmt.Sprint(consumers), rate(written), fmt.Sprintf("limit=%d", limit), fmt.Sprint(len(mine.wall)),
			ms(at(mine.wall, 50)), ms(at(mine.wall, 99)),
			ms(at(mine.wall, 100)), ms(at(mine.cpu, 50)),
			ms(at(mine.cpu, 99)), ms(at(theirs.wall, 50)), ms(at(theirs.wall, 99)))
	}
	return nil
}

// longer is how long answers are counted for a p99.
func (s *settings) longer() time.Duration { return max(s.atLeast, 10*time.Second) }

// writeSteadily writes inventories until stop, which returns how many were written a second.
func writeSteadily(ctx context.Context, ours *peer, data *nestedData) (stop func() (float64, error), err error) {
	st, err := data.inventoryWrites().begin(ctx, NewClient(ours.URL, several), 0)
	if err != nil {
		return nil, err
	}
	writing, cancel := context.WithCancel(ctx)
	written, failed, begin := 0, make(chan error, 1), time.Now()
	go func() {
		tick := time.NewTicker(time.Second / writesPerSecond)
		defer tick.Stop()
		for {
			select {
			case <-writing.Done():
				failed <- nil
				return
			case <-tick.C:
			}
			if _, err := st.do(ctx); err != nil {
				failed <- err
				return
			}
			written++
		}
	}()
	return func() (float64, error) {
		cancel()
		err := <-failed
		return float64(written) / time.Since(begin).Seconds(), err
	}, nil
}

// waits are how long requests took, and what processor time their service used meanwhile.
type waits struct{ wall, cpu []time.Duration }

// ask sends a request after the other for a while.
func (w *waits) ask(ctx context.Context, p *peer, limit int, during time.Duration) error {
	pids, err := p.pids()
	if err != nil {
		return err
	}
	do := Candidates(NewClient(p.URL, 1), NestedQuery, limit)
	for end := time.Now().Add(during); ; {
		before, err := testproc.CPU(pids...)
		if err != nil {
			return err
		}
		begin := time.Now()
		if begin.After(end) {
			return nil
		}
		if _, err := do(ctx); err != nil {
			return err
		}
		w.wall = append(w.wall, time.Since(begin))
		after, err := testproc.CPU(pids...)
		if err != nil {
			return err
		}
		w.cpu = append(w.cpu, after-before)
	}
}

// at is a percentile of times, 0 of none.
func at(times []time.Duration, p int) time.Duration {
	sorted := slices.Sorted(slices.Values(times))
	return (&sample{latencies: sorted}).at(p)
}
