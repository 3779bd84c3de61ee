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
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/placing"
	"github.com/compute-agent/compute-agent/cells/wire"
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
		StateDir: t.TempDir(), Exclusive: true, Auth: placement.Auth{Strategy: placement.NoAuth}, Policy: api.Legacy, Logger: zerolog.Nop(),
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
	r, err := placing.RequestOf(wire.Flavor{ID: "1", Flavor: plugins.Flavor{VCPUs: 1, MemoryMB: 512, RootGB: 1}})
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

// TestFailures: what reads and writes say of every way to get no answer. Only a request that cannot have left is said not to have happened.
func TestFailures(t *testing.T) {
	broken := reply(http.StatusOK, "")
	broken.Body = io.NopCloser(io.MultiReader(strings.NewReader("{"), brokenReader{}))
	for name, c := range map[string]struct {
		resp        func() *http.Response
		err         error
		read, write error
	}{
		"nobody listens":   {err: &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}, read: placementclient.ErrUnavailable, write: placementclient.ErrUnavailable},
		"a time-out":       {err: &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, read: placementclient.ErrUnavailable, write: placementclient.ErrOutcomeUnknown},
		"cut off":          {err: io.ErrUnexpectedEOF, read: placementclient.ErrUnavailable, write: placementclient.ErrOutcomeUnknown},
		"half an answer":   {resp: func() *http.Response { return broken }, read: placementclient.ErrUnavailable, write: placementclient.ErrOutcomeUnknown},
		"500":              {resp: func() *http.Response { return reply(500, "oops") }, read: placementclient.ErrUnavailable, write: placementclient.ErrOutcomeUnknown},
		"503":              {resp: func() *http.Response { return reply(503, "<html>") }, read: placementclient.ErrUnavailable, write: placementclient.ErrOutcomeUnknown},
		"401":              {resp: func() *http.Response { return reply(401, "") }, read: placementclient.ErrRefused, write: placementclient.ErrRefused},
		"403":              {resp: func() *http.Response { return reply(403, "") }, read: placementclient.ErrRefused, write: placementclient.ErrRefused},
		"404":              {resp: func() *http.Response { return reply(404, "") }, read: placementclient.ErrNotFound, write: placementclient.ErrNotFound},
		"406":              {resp: func() *http.Response { return reply(406, "") }, read: placementclient.ErrTooOld, write: placementclient.ErrTooOld},
		"a page":           {resp: func() *http.Response { return reply(200, "<html>") }, read: placementclient.ErrUnexpected, write: placementclient.ErrOutcomeUnknown},
		"other JSON":       {resp: func() *http.Response { return reply(200, "{}") }, read: placementclient.ErrUnexpected, write: placementclient.ErrOutcomeUnknown},
		"somewhere else":   {resp: func() *http.Response { return reply(302, "") }, read: placementclient.ErrUnexpected, write: placementclient.ErrUnexpected},
		"without end":      {resp: func() *http.Response { r := reply(200, ""); r.Body = io.NopCloser(endless{}); return r }, read: placementclient.ErrUnexpected, write: placementclient.ErrOutcomeUnknown},
		"an invalid class": {resp: func() *http.Response { return reply(400, `{"errors":[{"detail":"no such class"}]}`) }, read: placementclient.ErrInvalid, write: placementclient.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			client := client(t, transport(func(*http.Request) (*http.Response, error) {
				if c.err != nil {
					return nil, c.err
				}
				return c.resp(), nil
			}))
			_, err := client.Candidates(t.Context(), request(t))
			if !errors.Is(err, c.read) {
				t.Errorf("a read: %v, want %v", err, c.read)
			}
			if name != "half an answer" && name != "an invalid class" {
				if _, err := client.Allocations(t.Context(), server.UUID); !errors.Is(err, c.read) {
					t.Errorf("reading the allocations: %v, want %v", err, c.read)
				}
				if _, err := client.Usages(t.Context(), "p"); !errors.Is(err, c.read) {
					t.Errorf("reading the usages: %v, want %v", err, c.read)
				}
			}
			if name != "half an answer" { // its body is read by now
				if err := client.Claim(t.Context(), server, placing.Candidate{}); !errors.Is(err, c.write) {
					t.Errorf("a write: %v, want %v", err, c.write)
				}
			}
			if errors.Is(err, placementclient.ErrInvalid) == placementclient.Down(err) {
				t.Errorf("%v is about Placement as a whole: %v", err, placementclient.Down(err))
			}
		})
	}
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }

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
