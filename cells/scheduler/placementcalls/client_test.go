// SPDX-License-Identifier: Apache-2.0

package placementcalls_test

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
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/scheduler/placementcalls"
	"github.com/compute-agent/compute-agent/cells/scheduler/resourcerequest"
	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/placement/api"
	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func providerUUID(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }

// rig is a Placement, behind a transport that can do other things than ask it.
type rig struct {
	t       *testing.T
	handler http.Handler
	instead func(*http.Request) (*http.Response, error) // nil, nil: ask it

	mu     sync.Mutex // requests come at the same time
	routes []string
}

func (rg *rig) RoundTrip(r *http.Request) (*http.Response, error) {
	rg.mu.Lock()
	rg.routes = append(rg.routes, r.Method+" "+r.URL.Path)
	rg.mu.Unlock()
	if rg.instead != nil {
		if resp, err := rg.instead(r); resp != nil || err != nil {
			return resp, err
		}
	}
	return rg.serve(r), nil
}

func (rg *rig) serve(r *http.Request) *http.Response {
	served := r.Clone(r.Context())
	if served.Body == nil {
		served.Body = http.NoBody
	}
	served.RequestURI, served.RemoteAddr = r.URL.RequestURI(), "127.0.0.1:1"
	answer := httptest.NewRecorder()
	rg.handler.ServeHTTP(answer, served)
	return answer.Result()
}

// put writes something past the client.
func (rg *rig) put(path string, body any) {
	rg.t.Helper()
	text := testproc.Try(json.Marshal(body)).Or(rg.t)
	r := httptest.NewRequest(http.MethodPut, path, bytes.NewReader(text))
	if path == "/resource_providers" {
		r.Method = http.MethodPost
	}
	r.Header.Set("X-Auth-Token", "admin")
	r.Header.Set("OpenStack-API-Version", "placement 1.38")
	r.Header.Set("Content-Type", "application/json")
	if resp := rg.serve(r); resp.StatusCode >= 300 {
		text, _ := io.ReadAll(resp.Body)
		rg.t.Fatalf("%s: %d %s", path, resp.StatusCode, text)
	}
}

func (rg *rig) node(n int, inventory map[string]int, traits ...string) {
	rg.t.Helper()
	rg.put("/resource_providers", map[string]any{"uuid": providerUUID(n), "name": fmt.Sprint("node", n)})
	inventories := map[string]any{}
	for class, total := range inventory {
		inventories[class] = map[string]any{"total": total, "max_unit": total}
	}
	rg.put("/resource_providers/"+providerUUID(n)+"/inventories",
		map[string]any{"resource_provider_generation": 0, "inventories": inventories})
	if len(traits) == 0 {
		return
	}
	rg.put("/resource_providers/"+providerUUID(n)+"/traits",
		map[string]any{"resource_provider_generation": 1, "traits": traits})
}

var check = testproc.Check

// placementTemplate is a Placement with what it begins with.
var placementTemplate = dbservers.NewTemplate(newPlacement)

func newPlacement(database string) (*placement.Server, error) {
	return placement.New(context.Background(), placement.Config{
		Database: database, Auth: placement.Auth{Strategy: placement.NoAuth}, Policy: api.Legacy, Logger: zerolog.Nop(),
	})
}

func newRig(t *testing.T) (*rig, *placementcalls.Client) {
	t.Helper()
	server := testproc.Try(newPlacement(placementTemplate.Fresh(t))).Or(t)
	t.Cleanup(func() { check(t, server.Close()) })
	s := &rig{t: t, handler: server.Handler()}
	return s, newClient(t, s)
}

func newClient(
	t testing.TB, transport http.RoundTripper, change ...func(*placementclient.Config),
) *placementcalls.Client {
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
	return testproc.Try(placementcalls.New(cfg)).Or(t)
}

var testConsumer = cellwire.Server{UUID: providerUUID(100), ProjectID: "p", UserID: "u"}

func smallRequest(t *testing.T) resourcerequest.Request {
	t.Helper()
	r, err := resourcerequest.New(
		cellwire.Flavor{ID: "1", Flavor: plugins.Flavor{VCPUs: 1, MemoryMB: 512, RootGB: 1}}, nil)
	check(t, err)
	return r
}

// nodeResources are enough for two servers.
func nodeResources() map[string]int {
	return map[string]int{"VCPU": 2, "MEMORY_MB": 1024, "DISK_GB": 2}
}

// TestClaimMoveRelease: candidates, a claim, a move, the release.
func TestClaimMoveRelease(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s, c := newRig(t)
	testServerLifecycle(t, s, c)
}

func testServerLifecycle(t *testing.T, s *rig, c *placementcalls.Client) {
	t.Helper()
	s.node(1, nodeResources())
	s.node(2, map[string]int{"VCPU": 4, "MEMORY_MB": 4096, "DISK_GB": 9})
	s.node(3, nodeResources(), providertree.TraitStatusDisabled)
	candidates := testproc.Try(c.Candidates(t.Context(), smallRequest(t))).Or(t)
	free := map[string]int64{}
	by := map[string]resourcerequest.Candidate{}
	for _, candidate := range candidates {
		free[candidate.Root], by[candidate.Root] = candidate.FreeMemory, candidate
		if candidate.Mappings[""] == nil {
			t.Errorf("no mappings: %+v", candidate)
		}
	}
	testproc.Same(t, cmp.Diff(map[string]int64{providerUUID(1): 1024, providerUUID(2): 4096}, free))
	if held, err := c.Allocations(t.Context(), testConsumer.UUID); err != nil || len(held.Allocations) > 0 ||
		held.ConsumerGeneration != nil {
		t.Errorf("before, it holds %+v %v", held, err)
	}
	check(t, c.Claim(t.Context(), testConsumer, nil, by[providerUUID(1)]))
	s.routes = nil
	if err := c.Claim(t.Context(), testConsumer, nil,
		by[providerUUID(2)]); !errors.Is(err, placementcalls.ErrConsumerConflict) {
		t.Errorf("a second claim: %v", err)
	}
	testproc.Same(t, cmp.Diff([]string{"PUT /allocations/" + testConsumer.UUID, "GET /allocations/" +
		testConsumer.UUID}, s.routes))
	held := testproc.Try(c.Allocations(t.Context(), testConsumer.UUID)).Or(t)
	if held.ConsumerType != placementcalls.ConsumerType || held.ProjectID != "p" || held.UserID != "u" ||
		held.ConsumerGeneration == nil || held.Allocations[providerUUID(1)]["VCPU"] != 1 {
		t.Errorf("it holds %+v", held)
	}
	check(t, c.Claim(t.Context(), testConsumer, held.ConsumerGeneration, by[providerUUID(2)]))
	if err := c.Claim(t.Context(), testConsumer, held.ConsumerGeneration, by[providerUUID(1)]); !errors.Is(err,
		placementcalls.ErrConsumerConflict) {
		t.Errorf("a move with an old generation: %v", err)
	}
	usages := testproc.Try(c.Usages(t.Context(), "p", "")).Or(t)
	testproc.Same(t, cmp.Diff(map[string]int64{"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 1}, usages))
	testproc.Same(t, cmp.Diff(usages, testproc.Try(c.Usages(t.Context(), "p", "u")).Or(t)))
	testproc.Same(t, cmp.Diff(map[string]int64{}, testproc.Try(c.Usages(t.Context(), "p", "v")).Or(t)))
	for range 2 {
		s.routes = nil
		check(t, c.Release(t.Context(), testConsumer.UUID))
	}
	testproc.Samef(t, cmp.Diff([]string{"GET /allocations/" + testConsumer.UUID}, s.routes), "releasing nothing")
	if usages, err := c.Usages(t.Context(), "p", ""); err != nil || len(usages) != 0 {
		t.Errorf("afterwards %v %v", usages, err)
	}
}

// TestClaimWithoutCapacity: a node that filled up meanwhile, and one that is gone.
func TestClaimWithoutCapacity(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s, c := newRig(t)
	testCapacityExhausted(t, s, c)
}

func testCapacityExhausted(t *testing.T, s *rig, c *placementcalls.Client) {
	t.Helper()
	s.node(1, nodeResources())
	candidates, err := c.Candidates(t.Context(), smallRequest(t))
	check(t, err)
	for n := range 3 {
		consumer := testConsumer
		consumer.UUID = providerUUID(200 + n)
		err = c.Claim(t.Context(), consumer, nil, candidates[0])
	}
	testproc.ErrorIs(t, err, placementclient.ErrInsufficientCapacity, "the third: %v")
	gone := candidates[0]
	gone.Allocations = maps.Clone(gone.Allocations)
	gone.Allocations[providerUUID(9)] = gone.Allocations[providerUUID(1)]
	delete(gone.Allocations, providerUUID(1))
	if err := c.Claim(t.Context(), testConsumer, nil, gone); !errors.Is(err, placementclient.ErrInvalid) ||
		placementclient.Down(err) {
		t.Errorf("one that is gone: %v", err)
	}
}

// TestReleaseReadsAgain: others write at the same time, once, and always.
func TestReleaseReadsAgain(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s, c := newRig(t)
	s.node(1, nodeResources())
	candidates := testproc.Try(c.Candidates(t.Context(), smallRequest(t))).Or(t)
	for _, times := range []int{1, 100} {
		check(t, c.Claim(t.Context(), testConsumer, nil, candidates[0]))
		left, puts := times, 0
		s.instead = func(r *http.Request) (*http.Response, error) {
			if r.Method != http.MethodPut {
				return nil, nil
			}
			puts++
			if left--; left >= 0 {
				other := newClient(t, &rig{t: t, handler: s.handler})
				held := testproc.Try(other.Allocations(t.Context(), testConsumer.UUID)).Or(t)
				check(t, other.Claim(t.Context(), testConsumer, held.ConsumerGeneration, candidates[0]))
			}
			return nil, nil
		}
		err := c.Release(t.Context(), testConsumer.UUID)
		s.instead = nil
		switch {
		case times == 1 && (err != nil || puts != 2):
			t.Errorf("once: %v, after %d PUT", err, puts)
		case times == 100 && (!errors.Is(err, placementcalls.ErrConsumerConflict) || puts != 5):
			t.Errorf("always: %v, after %d PUT", err, puts)
		}
	}
}

// TestGenerationConflict: a provider was written at the same time, and the consumer was not.
func TestGenerationConflict(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s, c := newRig(t)
	s.node(1, nodeResources())
	candidates := testproc.Try(c.Candidates(t.Context(), smallRequest(t))).Or(t)
	s.instead = func(r *http.Request) (*http.Response, error) {
		if r.Method != http.MethodPut {
			return nil, nil
		}
		return placementReply(http.StatusConflict,
			`{"errors":[{"status":409,"code":"placement.concurrent_update","detail":"Inventory and/or allocations `+
				`changed while attempting to allocate"}]}`), nil
	}
	if err := c.Claim(t.Context(), testConsumer, nil, candidates[0]); !errors.Is(err, placementclient.ErrConflict) ||
		errors.Is(err, placementcalls.ErrConsumerConflict) {
		t.Errorf("%v", err)
	}
}

func placementReply(status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}
}

// TestIncompleteAnswers: an answer that lacks what Placement's always have is not taken for "there
// is nothing".
func TestIncompleteAnswers(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newClient(t,
		roundTripFunc(func(*http.Request) (*http.Response, error) { return placementReply(http.StatusOK, "{}"), nil }))
	_, err1 := c.Candidates(t.Context(), smallRequest(t))
	_, err2 := c.Allocations(t.Context(), testConsumer.UUID)
	_, err3 := c.Usages(t.Context(), "p", "")
	for _, err := range []error{err1, err2, err3, c.Release(t.Context(), testConsumer.UUID)} {
		if !errors.Is(err, placementclient.ErrUnexpected) || !placementclient.Down(err) {
			t.Error(err)
		}
	}
}

type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestSharedDisk: the root of a candidate is the node's, and not that of the provider that shares
// its disk.
func TestSharedDisk(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s, c := newRig(t)
	s.node(1, map[string]int{"VCPU": 2, "MEMORY_MB": 1024})
	s.node(2, map[string]int{"DISK_GB": 100}, "MISC_SHARES_VIA_AGGREGATE")
	for n := 1; n <= 2; n++ {
		s.put("/resource_providers/"+providerUUID(n)+"/aggregates",
			map[string]any{"resource_provider_generation": n, "aggregates": []string{providerUUID(50)}})
	}
	candidates := testproc.Try(c.Candidates(t.Context(), smallRequest(t))).Or(t)
	if len(candidates) != 1 || candidates[0].Root != providerUUID(1) || len(candidates[0].Allocations) != 2 ||
		candidates[0].FreeMemory != 1024 {
		t.Errorf("%+v", candidates)
	}
}

// TestHasTrait: what Placement says about a trait.
func TestHasTrait(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s, c := newRig(t)
	for _, want := range []bool{false, true} {
		if got, err := c.HasTrait(t.Context(), resourcerequest.TraitNUMARoot); got != want || err != nil {
			t.Errorf("%v, %v", got, err)
		}
		if !want {
			s.node(1, nodeResources(), resourcerequest.TraitNUMARoot)
		}
	}
	s.instead = func(*http.Request) (*http.Response, error) {
		return placementReply(http.StatusServiceUnavailable, ""), nil
	}
	if _, err := c.HasTrait(t.Context(), resourcerequest.TraitNUMARoot); !placementclient.Down(err) {
		t.Error(err)
	}
}
