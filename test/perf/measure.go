// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// operation is something that is done to a service again and again.
type operation struct {
	name string
	// begin makes what one worker does; it is not measured. The operation returns the bytes of its
	// answers.
	begin func(ctx context.Context, c *Client, worker int) (step, error)
	// workers is how many go about it at a time; a sample with one worker is taken as well unless
	// alone is false.
	workers int
	alone   bool
	// ours and theirs are how often it is repeated at least.
	ours, theirs int
}

// step is one repetition: prepare, unless nil, is not measured.
type step struct {
	prepare func(context.Context) error
	do      func(context.Context) (int, error)
}

// sample is what was measured.
type sample struct {
	done      int
	wall, cpu time.Duration   // cpu is of the service and its database
	database  time.Duration   // of cpu
	latencies []time.Duration // sorted
	bytes     int64
	refused   map[int]int // by status
	// statements are those that the database was sent, where they are counted.
	statements int64
}

// used adds what was used between two readings.
func (s *sample) used(before, after usage) {
	s.database += after.database - before.database
	s.cpu += after.service + after.database - before.service - before.database
}

func (s *sample) cpuEach() time.Duration { return s.cpu / time.Duration(max(s.done, 1)) }
func (s *sample) databaseEach() time.Duration {
	return s.database / time.Duration(max(s.done, 1))
}
func (s *sample) bytesEach() int64 { return s.bytes / int64(max(s.done, 1)) }
func (s *sample) rate() float64    { return float64(s.done) / s.wall.Seconds() }
func (s *sample) at(p int) time.Duration {
	if len(s.latencies) == 0 {
		return 0
	}
	return s.latencies[min(len(s.latencies)*p/100, len(s.latencies)-1)]
}

// most is the longest that one sample takes, however often its operation should be repeated.
const most = 3 * time.Minute

// measure repeats an operation at least n times and at least for a while. Answers of 409 and 5xx
// are counted; all other errors end it.
func measure(ctx context.Context, p *peer, op operation, workers, n int, atLeast time.Duration) (*sample, error) {
	c := NewClient(p.URL, workers)
	steps := make([]step, workers)
	for i := range steps {
		var err error
		if steps[i], err = op.begin(ctx, c, i); err != nil {
			return nil, fmt.Errorf("%s: prepare %s: %w", p.Name, op.name, err)
		}
	}
	s := &sample{refused: map[int]int{}}
	if workers == 1 && steps[0].prepare == nil { // what is there once is not measured
		if _, err := steps[0].do(ctx); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", p.Name, op.name, err)
		}
	}
	if steps[0].prepare != nil {
		return s, s.oneByOne(ctx, p, op, steps[0], n, atLeast)
	}
	statements, err := p.server.statements(ctx)
	if err != nil {
		return nil, err
	}
	before, err := p.usage()
	if err != nil {
		return nil, err
	}
	var left atomic.Int64
	left.Store(int64(n))
	begin := time.Now()
	parts, failures := make([]sample, workers), make([]error, workers)
	var working sync.WaitGroup
	for i, st := range steps {
		working.Go(func() {
			part := &parts[i]
			part.refused = map[int]int{}
			for {
				since := time.Since(begin)
				if left.Add(-1) < 0 && since > atLeast || since > most {
					return
				}
				if failures[i] = part.once(ctx, st); failures[i] != nil {
					return
				}
			}
		})
	}
	working.Wait()
	s.wall = time.Since(begin)
	if err := errors.Join(failures...); err != nil {
		return nil, fmt.Errorf("%s: %s: %w", p.Name, op.name, err)
	}
	after, err := p.usage()
	if err != nil {
		return nil, err
	}
	s.used(before, after)
	for i := range parts {
		s.add(&parts[i])
	}
	slices.Sort(s.latencies)
	now, err := p.server.statements(ctx)
	s.statements = max(now-statements-1, 0) // without the question itself
	return s, err
}

// once repeats a step and takes its time.
func (s *sample) once(ctx context.Context, st step) error {
	begin := time.Now()
	n, err := st.do(ctx)
	var refusal *StatusError
	switch {
	case errors.As(err, &refusal) && (refusal.Status == 409 || refusal.Status >= 500):
		s.refused[refusal.Status]++
		return nil
	case err != nil:
		return err
	}
	s.latencies = append(s.latencies, time.Since(begin))
	s.done++
	s.bytes += int64(n)
	return nil
}

// oneByOne is for steps with preparations: the CPU time is read around each.
func (s *sample) oneByOne(ctx context.Context, p *peer, op operation, st step, n int, atLeast time.Duration) error {
	for i := 0; i < n || s.wall < atLeast && s.wall < most; i++ {
		if err := st.prepare(ctx); err != nil {
			return fmt.Errorf("%s: prepare %s: %w", p.Name, op.name, err)
		}
		statements, err := p.server.statements(ctx)
		if err != nil {
			return err
		}
		before, err := p.usage()
		if err != nil {
			return err
		}
		begin := time.Now()
		if err := s.once(ctx, st); err != nil {
			return fmt.Errorf("%s: %s: %w", p.Name, op.name, err)
		}
		s.wall += time.Since(begin)
		after, err := p.usage()
		if err != nil {
			return err
		}
		s.used(before, after)
		now, err := p.server.statements(ctx)
		if err != nil {
			return err
		}
		s.statements += max(now-statements-1, 0) // without the question itself
	}
	slices.Sort(s.latencies)
	return nil
}

// join adds a sample that was taken later.
func (s *sample) join(o *sample) {
	s.add(o)
	s.wall += o.wall
	s.cpu += o.cpu
	s.database += o.database
	s.statements += o.statements
	slices.Sort(s.latencies)
}

func (s *sample) add(o *sample) {
	s.done += o.done
	s.bytes += o.bytes
	s.latencies = append(s.latencies, o.latencies...)
	for status, n := range o.refused {
		s.refused[status] += n
	}
}
