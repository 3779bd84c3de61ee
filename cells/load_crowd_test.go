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
	Kinds                    []string
	Clients, Each            int
}

// outcome is what came of it.
type outcome struct {
	Took    map[string][]time.Duration // by kind
	Elapsed time.Duration
	Wrong   []string // at most a few of those
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
			model: model{cells: c.Cells, servers: c.Servers, projects: c.Projects}, down: c.Down, url: c.URL, client: client, dir: c.Dir,
			took: map[string][]time.Duration{},
		}
		if err := outcomes.Encode(a.crowd(ctx, c)); err != nil {
			return err
		}
		client.CloseIdleConnections()
	}
}

func (a *asker) crowd(ctx context.Context, c crowd) outcome {
	var mu sync.Mutex
	var wrong []error
	var all sync.WaitGroup
	begin := time.Now()
	for client := range c.Clients {
		all.Go(func() {
			for n := range c.Each {
				if err := a.ask(ctx, c.Kinds[(client+n)%len(c.Kinds)], client*c.Each+n); err != nil {
					mu.Lock()
					wrong = append(wrong, err)
					mu.Unlock()
				}
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
	_, in, out := w.again(clientsEnv + "=yes")
	w.orders, w.outcomes = json.NewEncoder(in), json.NewDecoder(out)
}

// crowd has clients send requests to the API that serves now.
func (w *world) crowd(clients, each int, kinds []string, down ...int) outcome {
	w.t.Helper()
	check(w.t, w.orders.Encode(crowd{
		URL: w.url, Dir: w.dir, Cells: w.model.cells, Servers: w.model.servers, Projects: w.model.projects, Down: down,
		Kinds: kinds, Clients: clients, Each: each,
	}))
	var o outcome
	check(w.t, w.outcomes.Decode(&o))
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
