// SPDX-License-Identifier: Apache-2.0

package placing_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/placing"
	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/placement/api"
	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/plugins"
)

func sortedKeys(m map[string][]string) []string { return slices.Sorted(maps.Keys(m)) }

func id(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }

// service is a Placement, behind a transport that can do other things than ask it.
type service struct {
	t       *testing.T
	handler http.Handler
	instead func(*http.Request) (*http.Response, error) // nil, nil: ask it
	routes  []string
}

func (s *service) RoundTrip(r *http.Request) (*http.Response, error) {
	s.routes = append(s.routes, r.Method+" "+r.URL.Path)
	if s.instead != nil {
		if resp, err := s.instead(r); resp != nil || err != nil {
			return resp, err
		}
	}
	return s.serve(r), nil
}

func (s *service) serve(r *http.Request) *http.Response {
	served := r.Clone(r.Context())
	if served.Body == nil {
		served.Body = http.NoBody
	}
	served.RequestURI, served.RemoteAddr = r.URL.RequestURI(), "127.0.0.1:1"
	answer := httptest.NewRecorder()
	s.handler.ServeHTTP(answer, served)
	return answer.Result()
}

// put writes something past the client.
func (s *service) put(path string, body any) {
	s.t.Helper()
	text, err := json.Marshal(body)
	ok(s.t, err)
	r := httptest.NewRequest(http.MethodPut, path, bytes.NewReader(text))
	if path == "/resource_providers" {
		r.Method = http.MethodPost
	}
	r.Header.Set("X-Auth-Token", "admin")
	r.Header.Set("OpenStack-API-Version", "placement 1.38")
	r.Header.Set("Content-Type", "application/json")
	if resp := s.serve(r); resp.StatusCode >= 300 {
		text, _ := io.ReadAll(resp.Body)
		s.t.Fatalf("%s: %d %s", path, resp.StatusCode, text)
	}
}

func (s *service) node(n int, inventory map[string]int, traits ...string) {
	s.t.Helper()
	s.put("/resource_providers", map[string]any{"uuid": id(n), "name": fmt.Sprint("node", n)})
	inventories := map[string]any{}
	for class, total := range inventory {
		inventories[class] = map[string]any{"total": total, "max_unit": total}
	}
	s.put("/resource_providers/"+id(n)+"/inventories", map[string]any{"resource_provider_generation": 0, "inventories": inventories})
	if len(traits) == 0 {
		return
	}
	s.put("/resource_providers/"+id(n)+"/traits", map[string]any{"resource_provider_generation": 1, "traits": traits})
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func begin(t *testing.T) (*service, *placing.Client) {
	t.Helper()
	server, err := placement.New(t.Context(), placement.Config{
		StateDir: t.TempDir(), Auth: placement.Auth{Strategy: placement.NoAuth}, Policy: api.Legacy, Logger: zerolog.Nop(),
	})
	ok(t, err)
	t.Cleanup(func() { ok(t, server.Close()) })
	s := &service{t: t, handler: server.Handler()}
	return s, client(t, s)
}

func client(t testing.TB, transport http.RoundTripper, change ...func(*placementclient.Config)) *placing.Client {
	t.Helper()
	cfg := placementclient.Config{
		Endpoint: func(context.Context) (string, error) { return "http://placement/", nil },
		Authorize: func(_ context.Context, h http.Header) error {
			h.Set("X-Auth-Token", "admin")
			return nil
		},
		Transport: transport,
	}
	for _, f := range change {
		f(&cfg)
	}
	c, err := placing.New(cfg)
	ok(t, err)
	return c
}

var server = placing.Consumer{UUID: id(100), ProjectID: "p", UserID: "u"}

func request(t *testing.T) placing.Request {
	t.Helper()
	r, err := placing.RequestOf(cellwire.Flavor{ID: "1", Flavor: plugins.Flavor{VCPUs: 1, MemoryMB: 512, RootGB: 1}})
	ok(t, err)
	return r
}

// all is room for two servers.
func room() map[string]int { return map[string]int{"VCPU": 2, "MEMORY_MB": 1024, "DISK_GB": 2} }

// TestLife: candidates, a claim, a move, the release.
func TestLife(t *testing.T) {
	s, c := begin(t)
	life(t, s, c)
}

func life(t *testing.T, s *service, c *placing.Client) {
	t.Helper()
	s.node(1, room())
	s.node(2, map[string]int{"VCPU": 4, "MEMORY_MB": 4096, "DISK_GB": 9})
	s.node(3, room(), placing.TraitDisabled)
	candidates, err := c.Candidates(t.Context(), request(t))
	ok(t, err)
	free := map[string]int64{}
	by := map[string]placing.Candidate{}
	for _, candidate := range candidates {
		free[candidate.Root], by[candidate.Root] = candidate.FreeMemory, candidate
		if candidate.Mappings[""] == nil {
			t.Errorf("no mappings: %+v", candidate)
		}
	}
	if d := cmp.Diff(map[string]int64{id(1): 1024, id(2): 4096}, free); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	if held, err := c.Allocations(t.Context(), server.UUID); err != nil || !held.Nothing() || held.Generation != nil {
		t.Errorf("before, it holds %+v %v", held, err)
	}
	ok(t, c.Claim(t.Context(), server, by[id(1)]))
	s.routes = nil
	if err := c.Claim(t.Context(), server, by[id(2)]); !errors.Is(err, placing.ErrConsumerConflict) {
		t.Errorf("a second claim: %v", err)
	}
	if d := cmp.Diff([]string{"PUT /allocations/" + server.UUID, "GET /allocations/" + server.UUID}, s.routes); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	held, err := c.Allocations(t.Context(), server.UUID)
	ok(t, err)
	if held.Type != placing.ConsumerType || held.ProjectID != "p" || held.UserID != "u" || held.Generation == nil || held.Allocations[id(1)].Resources["VCPU"] != 1 {
		t.Errorf("it holds %+v", held)
	}
	ok(t, c.Move(t.Context(), server, held, by[id(2)]))
	if err := c.Move(t.Context(), server, held, by[id(1)]); !errors.Is(err, placing.ErrConsumerConflict) {
		t.Errorf("a move with an old generation: %v", err)
	}
	usages, err := c.Usages(t.Context(), "p")
	ok(t, err)
	if d := cmp.Diff(map[string]int64{"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 1}, usages); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	for range 2 {
		s.routes = nil
		ok(t, c.Release(t.Context(), server.UUID))
	}
	if d := cmp.Diff([]string{"GET /allocations/" + server.UUID}, s.routes); d != "" {
		t.Errorf("releasing nothing (-want +got)\n%s", d)
	}
	if usages, err := c.Usages(t.Context(), "p"); err != nil || len(usages) != 0 {
		t.Errorf("afterwards %v %v", usages, err)
	}
}

// TestNoRoom: a node that filled up meanwhile, and one that is gone.
func TestNoRoom(t *testing.T) {
	s, c := begin(t)
	noRoom(t, s, c)
}

func noRoom(t *testing.T, s *service, c *placing.Client) {
	t.Helper()
	s.node(1, room())
	candidates, err := c.Candidates(t.Context(), request(t))
	ok(t, err)
	for n := range 3 {
		consumer := server
		consumer.UUID = id(200 + n)
		err = c.Claim(t.Context(), consumer, candidates[0])
	}
	if !errors.Is(err, placementclient.ErrNoRoom) {
		t.Errorf("the third: %v", err)
	}
	gone := candidates[0]
	gone.Allocations = maps.Clone(gone.Allocations)
	gone.Allocations[id(9)] = gone.Allocations[id(1)]
	delete(gone.Allocations, id(1))
	if err := c.Claim(t.Context(), server, gone); !errors.Is(err, placementclient.ErrInvalid) || placementclient.Down(err) {
		t.Errorf("one that is gone: %v", err)
	}
}

// TestReleaseReadsAgain: others write at the same time, once, and always.
func TestReleaseReadsAgain(t *testing.T) {
	s, c := begin(t)
	s.node(1, room())
	candidates, err := c.Candidates(t.Context(), request(t))
	ok(t, err)
	for _, times := range []int{1, 100} {
		ok(t, c.Claim(t.Context(), server, candidates[0]))
		left, puts := times, 0
		s.instead = func(r *http.Request) (*http.Response, error) {
			if r.Method != http.MethodPut {
				return nil, nil
			}
			puts++
			if left--; left >= 0 {
				other := client(t, &service{t: t, handler: s.handler})
				held, err := other.Allocations(t.Context(), server.UUID)
				ok(t, err)
				ok(t, other.Move(t.Context(), server, held, candidates[0]))
			}
			return nil, nil
		}
		err := c.Release(t.Context(), server.UUID)
		s.instead = nil
		switch {
		case times == 1 && (err != nil || puts != 2):
			t.Errorf("once: %v, after %d PUT", err, puts)
		case times == 100 && (!errors.Is(err, placing.ErrConsumerConflict) || puts != 5):
			t.Errorf("always: %v, after %d PUT", err, puts)
		}
	}
}

// TestGenerationConflict: a provider was written at the same time, and the consumer was not.
func TestGenerationConflict(t *testing.T) {
	s, c := begin(t)
	s.node(1, room())
	candidates, err := c.Candidates(t.Context(), request(t))
	ok(t, err)
	s.instead = func(r *http.Request) (*http.Response, error) {
		if r.Method != http.MethodPut {
			return nil, nil
		}
		return reply(http.StatusConflict, `{"errors":[{"status":409,"code":"placement.concurrent_update","detail":"Inventory and/or allocations changed while attempting to allocate"}]}`), nil
	}
	if err := c.Claim(t.Context(), server, candidates[0]); !errors.Is(err, placementclient.ErrConflict) || errors.Is(err, placing.ErrConsumerConflict) {
		t.Errorf("%v", err)
	}
}

func reply(status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}
}

// TestIncompleteAnswers: an answer that lacks what Placement's always have is not taken for "there is nothing".
func TestIncompleteAnswers(t *testing.T) {
	c := client(t, transport(func(*http.Request) (*http.Response, error) { return reply(http.StatusOK, "{}"), nil }))
	_, err1 := c.Candidates(t.Context(), request(t))
	_, err2 := c.Allocations(t.Context(), server.UUID)
	_, err3 := c.Usages(t.Context(), "p")
	for _, err := range []error{err1, err2, err3, c.Release(t.Context(), server.UUID)} {
		if !errors.Is(err, placementclient.ErrUnexpected) || !placementclient.Down(err) {
			t.Error(err)
		}
	}
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestSharedDisk: the root of a candidate is the node's, and not that of whoever shares its disk.
func TestSharedDisk(t *testing.T) {
	s, c := begin(t)
	s.node(1, map[string]int{"VCPU": 2, "MEMORY_MB": 1024})
	s.node(2, map[string]int{"DISK_GB": 100}, "MISC_SHARES_VIA_AGGREGATE")
	for n := 1; n <= 2; n++ {
		s.put("/resource_providers/"+id(n)+"/aggregates", map[string]any{"resource_provider_generation": n, "aggregates": []string{id(50)}})
	}
	candidates, err := c.Candidates(t.Context(), request(t))
	ok(t, err)
	if len(candidates) != 1 || candidates[0].Root != id(1) || len(candidates[0].Allocations) != 2 || candidates[0].FreeMemory != 1024 {
		t.Errorf("%+v", candidates)
	}
}
