// SPDX-License-Identifier: Apache-2.0

package cells_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"sync"
	"time"
)

// crowd is an order for the process of the clients: so many clients send so many requests each,
// cycling through the kinds.
type crowd struct {
	URL                      string
	Dir                      string
	Cells, Servers, Projects int
	Down                     []int
	Perhaps                  []int // cells that are down in some answers
	Kinds                    []string
	Clients, Each            int
	// Halfway asks for an outcome with only that when half of the requests have their answers.
	Halfway bool
}

// outcome is what came of it.
type outcome struct {
	Took    map[string][]time.Duration // by kind
	Elapsed time.Duration
	Wrong   []string // at most a few of those
	Halfway bool     // the crowd goes on
}

// clientsEnv tells this test binary to be the clients.
const clientsEnv = "CELLS_LOAD_CLIENTS"

// serveClients reads crowds and writes outcomes, a line each, until there are no more.
func serveClients(ctx context.Context, in io.Reader, out io.Writer) error {
	client, orders, outcomes := newClient(), json.NewDecoder(in), json.NewEncoder(out)
	for {
		var c crowd
		if err := orders.Decode(&c); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		a := &asker{
			model: model{cells: c.Cells, servers: c.Servers, projects: c.Projects}, down: c.Down, perhaps: c.Perhaps,
			url: c.URL, client: client, dir: c.Dir,
			took: map[string][]time.Duration{},
		}
		halfway := func() {
			if c.Halfway {
				_ = outcomes.Encode(outcome{Halfway: true}) // the next one fails as well
			}
		}
		if err := outcomes.Encode(a.crowd(ctx, c, halfway)); err != nil {
			return err
		}
		client.CloseIdleConnections()
	}
}

// crowd sends all requests, and calls halfway when half of them are over.
func (a *asker) crowd(ctx context.Context, c crowd, halfway func()) outcome {
	var mu sync.Mutex
	var over int
	var wrong []error
	var all sync.WaitGroup
	begin := time.Now()
	for client := range c.Clients {
		all.Go(func() {
			for n := range c.Each {
				err := a.ask(ctx, c.Kinds[(client+n)%len(c.Kinds)], client*c.Each+n)
				mu.Lock()
				if over++; over == c.Clients*c.Each/2 {
					halfway()
				}
				if err != nil {
					wrong = append(wrong, err)
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	o := outcome{Elapsed: time.Since(begin), Took: a.took}
	wrong = append(wrong, a.judged()...)
	for _, err := range wrong[:min(len(wrong), few)] {
		o.Wrong = append(o.Wrong, err.Error())
	}
	return o
}

// startClients has a process of their own be the clients: what they do with answers is not to be in
// the way of the API.
func (w *world) startClients() {
	w.t.Helper()
	c := w.again(clientsEnv + "=yes")
	w.orders, w.outcomes = json.NewEncoder(c.in), json.NewDecoder(c.out)
}

// crowd has clients send requests to the API that serves now. Between the first half of them and
// the others it calls halfway, if that is not nil; others do not wait for it.
func (w *world) crowd(c crowd, halfway func()) outcome {
	w.t.Helper()
	c.URL, c.Dir, c.Cells, c.Servers, c.Projects, c.Halfway = w.url, w.dir, w.model.cells, w.model.servers,
		w.model.projects, halfway != nil
	check(w.t, w.orders.Encode(c))
	var o outcome
	check(w.t, w.outcomes.Decode(&o))
	if o.Halfway {
		halfway()
		o = outcome{}
		check(w.t, w.outcomes.Decode(&o))
	}
	return o
}

// quantile of the times of a kind; "" is all.
func (o outcome) quantile(kind string, q float64) time.Duration {
	var times []time.Duration
	for k, took := range o.Took {
		if kind == "" || k == kind {
			times = append(times, took...)
		}
	}
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return times[min(int(float64(len(times))*q), len(times)-1)]
}

// asked is how many requests were answered.
func (o outcome) asked() (n int) {
	for _, took := range o.Took {
		n += len(took)
	}
	return n
}
