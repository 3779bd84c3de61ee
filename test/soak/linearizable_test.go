// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/anishathalye/porcupine"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/placement/api"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// serve opens a Placement on an empty database, on the engine of the test, and serves it through a
// wrapper.
func serve(t *testing.T, wrap func(http.Handler) http.Handler) *client {
	t.Helper()
	return serveAll(t, wrap)[0]
}

// serveAll serves one Placement several times.
func serveAll(t *testing.T, wraps ...func(http.Handler) http.Handler) (clients []*client) {
	t.Helper()
	server := testproc.Try(placement.New(context.Background(), placement.Config{
		Database: dbservers.Fresh(t), Auth: placement.Auth{Strategy: placement.NoAuth},
		Policy: api.Legacy, Logger: zerolog.Nop(),
	})).Or(t)
	t.Cleanup(func() { check(t, server.Close()) })
	for _, wrap := range wraps {
		h := httptest.NewServer(wrap(server.Handler()))
		t.Cleanup(h.Close)
		clients = append(clients, newClient(t, h.URL))
	}
	return clients
}

func asItIs(h http.Handler) http.Handler { return h }

// plantAll makes trees and returns their first states.
func plantAll(t *testing.T, c *client, trees ...int) map[int]*forest {
	t.Helper()
	from := map[int]*forest{}
	for _, tree := range trees {
		check(t, c.plant(t.Context(), tree))
		from[tree] = newForest(tree)
	}
	return from
}

// TestLinearizable: the answers to concurrent clients are those that clients one after the other
// could get.
func TestLinearizable(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	chance := testproc.Seed(t)
	c := serve(t, asItIs)
	counts := map[string]int{}
	for round := range rounds(t, 2) {
		from := plantAll(t, c, 3*round+1, 3*round+2, 3*round+3)
		s := newStorm()
		s.blow(t.Context(), chance, from, 4, 60, c)
		for tree := range from {
			s.readAll(t, c, tree)
		}
		s.linearizable(t, from)
		s.tally(counts)
	}
	t.Log(counts)
	for _, k := range []kind{putAllocations, postAllocations, deleteAllocations, putInventories, postReshape} {
		if counts[string(k)+" done"] == 0 {
			t.Errorf("no %s succeeded: the storm was none", k)
		}
	}
}

// TestCheckerDetectsBrokenPromises: servers that sometimes break one promise are detected.
func TestCheckerDetectsBrokenPromises(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	var mu sync.Mutex
	for name, wrap := range map[string]func(http.Handler) http.Handler{
		"a read is out of date": func(h http.Handler) http.Handler {
			old := map[string]*httptest.ResponseRecorder{}
			return sometimes(h, 4, http.MethodGet, "/allocations/", func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				before, known := old[r.URL.Path]
				mu.Unlock()
				if !known {
					before = record(h, r)
					mu.Lock()
					old[r.URL.Path] = before
					mu.Unlock()
				}
				replay(w, before)
			})
		},
		"acknowledged and never done": forgets,
		"acknowledged before it is done": func(h http.Handler) http.Handler {
			var late *http.Request
			return sometimes(h, 1, "", "", func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				if r.Method == http.MethodPut && strings.HasPrefix(r.URL.Path, "/allocations/") && late == nil {
					body, _ := io.ReadAll(r.Body)
					late = with(r, r.Method, r.URL.Path, string(body))
					w.WriteHeader(http.StatusNoContent)
					return
				}
				h.ServeHTTP(w, r)
				if late != nil && r.Method == http.MethodGet {
					record(h, late)
					late = nil
				}
			})
		},
		"acknowledged and undone": func(h http.Handler) http.Handler {
			return sometimes(h, 3, http.MethodPut, "/allocations/", func(w http.ResponseWriter, r *http.Request) {
				done := record(h, r)
				if done.Code == http.StatusNoContent {
					record(h, with(r, http.MethodDelete, r.URL.Path, ""))
				}
				replay(w, done)
			})
		},
		"done by half": func(h http.Handler) http.Handler {
			return sometimes(h, 1, http.MethodPost, "/allocations", func(w http.ResponseWriter, r *http.Request) {
				var bodies map[string]json.RawMessage
				text, _ := io.ReadAll(r.Body)
				_ = json.Unmarshal(text, &bodies)
				for consumer, body := range bodies {
					done := record(h, with(r, http.MethodPut, "/allocations/"+consumer, string(body)))
					if done.Code != http.StatusNoContent {
						replay(w, done)
						return
					}
				}
				w.WriteHeader(http.StatusNoContent)
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := serve(t, wrap)
			chance := testproc.Seed(t)
			storms(t, c, porcupine.Illegal, func(s *storm, from map[int]*forest) {
				s.blow(t.Context(), chance, from, 3, 60, c)
				for tree := range from {
					s.readAll(t, c, tree)
				}
			})
		})
	}
}

// storms has storms until one is judged as wanted. One is enough nearly always; that chance spares
// the server twenty times does not happen.
func storms(t *testing.T, c *client, want porcupine.CheckResult, blow func(*storm, map[int]*forest)) {
	t.Helper()
	for tree := range 20 {
		from := plantAll(t, c, tree)
		s := newStorm()
		blow(s, from)
		result, draw := s.judge(from)
		if result == want {
			return
		}
		if result != porcupine.Ok {
			t.Fatal(draw())
		}
	}
	t.Error("it was not noticed")
}

// sometimes sends every nth request of a method below a path elsewhere.
func sometimes(h http.Handler, n int64, method, path string, broken http.HandlerFunc) http.Handler {
	var count atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if (method == "" || r.Method == method) && strings.HasPrefix(r.URL.Path, path) && count.Add(1)%n == 0 {
			broken(w, r)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// with is a request of the same client with another line and body.
func with(r *http.Request, method, path, body string) *http.Request {
	out := httptest.NewRequest(method, path, strings.NewReader(body))
	out.Header = r.Header.Clone()
	if body == "" {
		out.Header.Del("Content-Type")
	}
	return out
}

func record(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func replay(w http.ResponseWriter, from *httptest.ResponseRecorder) {
	maps.Copy(w.Header(), from.Header())
	w.WriteHeader(from.Code)
	_, _ = w.Write(from.Body.Bytes()) // whether the client takes it shows in the history
}

// TestCheckerDetectsServersThatDisagree: clients that send each request to any of three servers
// notice that one of them is behind, or forgets what it has acknowledged.
func TestCheckerDetectsServersThatDisagree(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, test := range map[string]struct {
		wrap func(http.Handler) http.Handler
		want porcupine.CheckResult
	}{
		"none does":     {asItIs, porcupine.Ok},
		"one is behind": {isBehind, porcupine.Illegal},
		"one forgets":   {forgets, porcupine.Illegal},
	} {
		t.Run(name, func(t *testing.T) {
			// Nothing strikes, so each answer comes. What became of a write that was given up is
			// not found out here.
			s := &site{dice: newDice(testproc.Seed(t), 0), patience: timeout}
			for _, c := range serveAll(t, asItIs, test.wrap, asItIs) {
				s.servers = append(s.servers, &replica{client: c})
			}
			storms(t, s.servers[0].client, test.want, func(st *storm, from map[int]*forest) {
				st.target.Store(100)
				end := s.roamAll(t, st, from)
				<-st.enough
				end()
			})
		})
	}
}

// isBehind answers each read with what the last read of the same should have been answered.
func isBehind(h http.Handler) http.Handler {
	var mu sync.Mutex
	old := map[string]*httptest.ResponseRecorder{}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			h.ServeHTTP(w, r)
			return
		}
		now := record(h, r)
		mu.Lock()
		before, known := old[r.URL.String()]
		old[r.URL.String()] = now
		mu.Unlock()
		if !known {
			before = now
		}
		replay(w, before)
	})
}

// forgets acknowledges deletions, and does none of what is there.
func forgets(h http.Handler) http.Handler {
	return sometimes(h, 1, http.MethodDelete, "/allocations/", func(w http.ResponseWriter, r *http.Request) {
		if shown := record(h, with(r, http.MethodGet, r.URL.Path, "")); strings.Contains(
			shown.Body.String(), "project_id") {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		h.ServeHTTP(w, r)
	})
}
