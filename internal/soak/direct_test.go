// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/placement/api"
	"github.com/compute-agent/compute-agent/placement/store"
)

func direct(dir string, exclusive bool) (*placement.InProcess, error) {
	return placement.Direct(context.Background(), placement.Config{StateDir: dir, Exclusive: exclusive, Policy: api.Legacy, Logger: zerolog.Nop()})
}

// TestDirectBesideAServer: Direct on the file of a running server is one more server: both write the same trees at the same
// time, and what both answer has one order.
func TestDirectBesideAServer(t *testing.T) {
	dir := place(t)
	server := start(t, nil, onStateDir(dir)...)
	d, err := direct(dir, false)
	check(t, err)
	clients := []*client{server.quietly(t), {&http.Client{Transport: d}, "http://placement.invalid"}}
	from := plantAll(t, clients[1], 1, 2)
	s := newStorm()
	s.blow(t.Context(), seed(t), from, 4, 60, clients...)
	for tree := range from {
		if a, b := s.readAll(t, clients[0], tree), s.readAll(t, clients[1], tree); !a.equal(b) {
			t.Errorf("the server says %+v, Direct %+v", a, b)
		}
	}
	s.linearizable(t, from)
	check(t, d.Close())
	server.Stop(t)
}

// TestExclusive: who asks for the file alone gets it alone: not beside a server, and no server starts beside it. Each
// refusal says what to do, and is over with its cause.
func TestExclusive(t *testing.T) {
	dir := place(t)
	server := start(t, nil, onStateDir(dir)...)
	server.quietly(t)
	if _, err := direct(dir, true); !errors.Is(err, store.ErrLocked) || !strings.Contains(err.Error(), "stop that one first") {
		t.Errorf("beside a server: %v", err)
	}
	server.Stop(t)
	d, err := direct(dir, true)
	check(t, err)
	server = start(t, nil, onStateDir(dir)...)
	if code, said := server.Exit(t), strings.Join(server.Lines(), "\n"); code != 1 ||
		!strings.Contains(said, dir+"/placement.db") || !strings.Contains(said, "another process uses it exclusively; stop that one first") {
		t.Errorf("a server beside it ended with %d and says: %s", code, said)
	}
	check(t, d.Close())
	server = start(t, nil, onStateDir(dir)...)
	server.quietly(t)
	server.Stop(t)
}

// TestReadAfterWriteAtTheOther: what one server acknowledged, a read that begins afterwards at the other shows, every time.
func TestReadAfterWriteAtTheOther(t *testing.T) {
	dir := place(t)
	servers := []*process{start(t, nil, onStateDir(dir)...), start(t, nil, onStateDir(dir)...)}
	clients := []*client{servers[0].quietly(t), servers[1].quietly(t)}
	state := plantAll(t, clients[0], 1, 2, 3, 4)
	var wg sync.WaitGroup
	for tree, f := range state {
		wg.Go(func() {
			p := providerUUID(tree, 0)
			for n := range 50 {
				o := op{kind: putInventories, tree: tree, subject: p, offers: map[string]offer{p: {f.providers[p].generation, amounts{"VCPU": int64(n + 1)}}}}
				next, want := apply(f, o)
				f = next
				if a, err := clients[n%2].do(t.Context(), o); err != nil || a != want {
					t.Errorf("write %d: %+v, %v, want %+v", n, a, err, want)
				}
				r := op{kind: getInventories, tree: tree, subject: p}
				if a, err := clients[(n+1)%2].do(t.Context(), r); err != nil || a != f.read(r) {
					t.Errorf("after write %d the other says %+v, %v, want %+v", n, a, err, f.read(r))
				}
			}
		})
	}
	wg.Wait()
	for _, p := range servers {
		p.Stop(t)
	}
}
