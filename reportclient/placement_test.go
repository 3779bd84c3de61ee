// SPDX-License-Identifier: Apache-2.0

package reportclient_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// counter is a transport that notes every request.
type counter struct {
	mu   sync.Mutex
	seen []string
	// fail, if set, may answer in Placement's stead.
	fail func(*http.Request) (*http.Response, error)
}

func (c *counter) RoundTrip(r *http.Request) (*http.Response, error) {
	c.mu.Lock()
	c.seen = append(c.seen, r.Method+" "+r.URL.Path)
	fail := c.fail
	c.mu.Unlock()
	if fail != nil {
		if resp, err := fail(r); resp != nil || err != nil {
			return resp, err
		}
	}
	return http.DefaultTransport.RoundTrip(r)
}

// since returns the requests noted so far and forgets them, with the uuids of the tests shortened.
func (c *counter) since() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := []string{}
	for _, s := range c.seen {
		for i := range 40 {
			s = strings.ReplaceAll(s, id(i), fmt.Sprint("#", i))
		}
		out = append(out, s)
	}
	c.seen = nil
	return out
}

// onBundled runs a test against the bundled Placement.
func onBundled(t *testing.T, test func(t *testing.T, url string)) {
	t.Helper()
	testproc.Parallel(t, testproc.Light)
	test(t, bundled(t, placement.Auth{Strategy: placement.NoAuth}))
}

// onOpenStack runs a test against OpenStack's Placement.
func onOpenStack(t *testing.T, test func(t *testing.T, url string)) {
	t.Helper()
	testproc.Parallel(t, testproc.Light)
	test(t, testproc.StartPlacement(t).URL)
}

// bundled starts the bundled Placement and returns its URL.
func bundled(t *testing.T, auth placement.Auth, change ...func(*placement.Config)) string {
	t.Helper()
	cfg := placement.Config{StateDir: t.TempDir(), Auth: auth, Logger: zerolog.Nop()}
	for _, c := range change {
		c(&cfg)
	}
	server, err := placement.New(t.Context(), cfg)
	ok(t, err)
	web := httptest.NewServer(server.Handler())
	t.Cleanup(func() { web.Close(); ok(t, server.Close()) })
	return web.URL
}

type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

func authorized(_ context.Context, h http.Header) error {
	h.Set("X-Auth-Token", "admin")
	return nil
}

func observed(t *testing.T, url string) (*reportclient.Client, *counter, *clock) {
	t.Helper()
	requests, now := &counter{}, &clock{now: time.Now()}
	client := testproc.Try(reportclient.New(reportclient.Config{
		Config: placementclient.Config{URL: url,
			Transport: requests, Authorize: authorized, Now: now.Now, Logger: zerolog.Nop()},
		RefreshInterval: 5 * time.Minute, Jitter: func() float64 { return 0 },
	})).Or(t)
	return client, requests, now
}

// apply makes Placement say what the edits lead to.
func apply(t *testing.T, client *reportclient.Client, edits ...edit) error {
	t.Helper()
	known := testproc.Try(client.Tree(t.Context(), id(1), "cn1")).Or(t)
	desired := known.Clone()
	for _, e := range edits {
		e(t, desired)
	}
	return client.Apply(t.Context(), id(1), client.Plan(known, desired))
}

var firstTree = []edit{
	inventory(1, "VCPU", providertree.Inventory{Total: 8, AllocationRatio: 4, MaxUnit: 8}),
	inventory(1, "MEMORY_MB", providertree.Inventory{Total: 16000, Reserved: 512}),
	traits(1, "COMPUTE_NODE", "CUSTOM_FAST"), child(1, 2, "cn1_gpu"),
	inventory(2, "CUSTOM_GPU", providertree.Inventory{Total: 2}),
}

func want(t *testing.T, requests *counter, list ...string) {
	t.Helper()
	testproc.Samef(t, cmp.Diff(append([]string{}, list...), requests.since()), "requests")
}

// TestRequestBudget is the story of a node's life with every request that it costs.
func TestRequestBudget(t *testing.T) { onBundled(t, testRequestBudget) }

// TestRealRequestBudget is the same with OpenStack's Placement.
func TestRealRequestBudget(t *testing.T) { onOpenStack(t, testRequestBudget) }

func testRequestBudget(t *testing.T, url string) {
	t.Helper()
	client, requests, now := observed(t, url)

	ok(t, apply(t, client, firstTree...))
	want(t, requests, // a node that Placement does not know
		"GET /", "GET /resource_providers", "GET /resource_providers",
		"PUT /resource_classes/CUSTOM_GPU", "PUT /traits/CUSTOM_FAST",
		"POST /resource_providers", "POST /resource_providers",
		"PUT /resource_providers/#2/inventories", "PUT /resource_providers/#1/inventories",
		"PUT /resource_providers/#1/traits")

	for range 100 {
		ok(t, apply(t, client))
	}
	want(t, requests) // a steady pass

	now.pass(6 * time.Minute)
	ok(t, apply(t, client))
	want(t, requests, "GET /resource_providers") // the tree is verified

	ok(t, apply(t, client, inventory(1, "VCPU", providertree.Inventory{Total: 16})))
	want(t, requests, "PUT /resource_providers/#1/inventories") // one change, one write
	ok(t, apply(t, client))
	want(t, requests) // and what was written is known

	again, requests2, _ := observed(t, url) // the agent starts again on an existing tree
	ok(t, apply(t, again))
	want(t, requests2, "GET /", "GET /resource_providers",
		"GET /resource_providers/#1/inventories", "GET /resource_providers/#1/traits",
		"GET /resource_providers/#1/aggregates",
		"GET /resource_providers/#2/inventories", "GET /resource_providers/#2/traits",
		"GET /resource_providers/#2/aggregates")
	a := testproc.Try(client.Tree(t.Context(), id(1), "cn1")).Or(t)
	b := testproc.Try(again.Tree(t.Context(), id(1), "cn1")).Or(t)
	if !a.Equal(b) {
		t.Errorf("what was written and what is read differ:\n%s",
			cmp.Diff(slices.Collect(a.All()), slices.Collect(b.All())))
	}

	ok(t, apply(t, client, func(t *testing.T, tr *providertree.Tree) { testproc.Try(tr.Remove(id(2))).Or(t) }))
	want(t, requests, "DELETE /resource_providers/#2")
}

// TestAnotherClientWrites: a conflict is reported as ErrConflict, only what changed is read again,
// and the other client's change survives.
func TestAnotherClientWrites(t *testing.T) { onBundled(t, testAnotherClientWrites) }

// TestRealAnotherClientWrites is the same with OpenStack's Placement.
func TestRealAnotherClientWrites(t *testing.T) { onOpenStack(t, testAnotherClientWrites) }

func testAnotherClientWrites(t *testing.T, url string) {
	t.Helper()
	client, requests, _ := observed(t, url)
	ok(t, apply(t, client, firstTree...))
	other, _, _ := observed(t, url)
	ok(t, apply(t, other, traits(1, "CUSTOM_ADMIN")))
	requests.since()

	change := inventory(1, "VCPU", providertree.Inventory{Total: 4})
	if err := apply(t, client, change); !errors.Is(err, reportclient.ErrConflict) {
		t.Fatalf("got %v, want a conflict", err)
	}
	want(t, requests, "PUT /resource_providers/#1/inventories")
	ok(t, apply(t, client, change))
	want(t, requests, "GET /resource_providers", "GET /resource_providers/#1/inventories",
		"GET /resource_providers/#1/traits",
		"GET /resource_providers/#1/aggregates", "PUT /resource_providers/#1/inventories")
	tree := testproc.Try(client.Tree(t.Context(), id(1), "cn1")).Or(t)
	if !tree.HasTraits(id(1), "CUSTOM_ADMIN", "CUSTOM_FAST") {
		t.Error("the other's trait is gone")
	}
}

// TestLostAnswer: a write whose answer got lost has happened; looking finds that out, and nothing
// is written twice.
func TestLostAnswer(t *testing.T) { onBundled(t, testLostAnswer) }

// TestRealLostAnswer is the same with OpenStack's Placement.
func TestRealLostAnswer(t *testing.T) { onOpenStack(t, testLostAnswer) }

func testLostAnswer(t *testing.T, url string) {
	t.Helper()
	client, requests, _ := observed(t, url)
	ok(t, apply(t, client, firstTree...))
	requests.since()
	requests.fail = func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodPut {
			resp := testproc.Try(http.DefaultTransport.RoundTrip(r)).Or(t)
			_ = resp.Body.Close()
			return nil, errors.New("connection reset by peer")
		}
		return nil, nil
	}
	change := inventory(1, "VCPU", providertree.Inventory{Total: 4})
	if err := apply(t, client, change); !errors.Is(err, reportclient.ErrUnavailable) {
		t.Fatalf("got %v", err)
	}
	want(t, requests, "PUT /resource_providers/#1/inventories")
	ok(t, apply(t, client, change))
	want(t, requests, "GET /resource_providers", "GET /resource_providers/#1/inventories",
		"GET /resource_providers/#1/traits",
		"GET /resource_providers/#1/aggregates")
}

// TestRefusalsStayApart: what one provider is refused does not keep the others from their changes.
func TestRefusalsStayApart(t *testing.T) { onBundled(t, testRefusalsStayApart) }

// TestRealRefusalsStayApart is the same with OpenStack's Placement.
func TestRealRefusalsStayApart(t *testing.T) { onOpenStack(t, testRefusalsStayApart) }

func testRefusalsStayApart(t *testing.T, url string) {
	t.Helper()
	client, requests, _ := observed(t, url)
	ok(t, apply(t, client, firstTree...))
	requests.since()
	err := apply(t, client, inventory(2, "NO_SUCH_STANDARD_CLASS", providertree.Inventory{Total: 1}),
		inventory(1, "VCPU", providertree.Inventory{Total: 4}))
	var failed *reportclient.ApplyError
	if !errors.As(err, &failed) || failed.Done != 1 || len(failed.Failed) != 1 ||
		failed.Failed[0].Provider != "cn1_gpu" || !errors.Is(err, reportclient.ErrInvalid) {
		t.Fatalf("got %v", err)
	}
	tree := testproc.Try(client.Tree(t.Context(), id(1), "cn1")).Or(t)
	if inv, _ := tree.Inventory(id(1), "VCPU"); inv.Total != 4 {
		t.Error("the root's change did not happen")
	}
}

// TestTraitThatPlacementIsTooOldFor is left out with a warning, and the others count.
func TestTraitThatPlacementIsTooOldFor(t *testing.T) { onBundled(t, testTraitThatPlacementIsTooOldFor) }

// TestRealTraitThatPlacementIsTooOldFor is the same with OpenStack's Placement.
func TestRealTraitThatPlacementIsTooOldFor(t *testing.T) {
	onOpenStack(t, testTraitThatPlacementIsTooOldFor)
}

func testTraitThatPlacementIsTooOldFor(t *testing.T, url string) {
	t.Helper()
	client, requests, _ := observed(t, url)
	add := traits(1, "COMPUTE_NODE", "HW_CPU_X86_NOT_INVENTED_YET")
	ok(t, apply(t, client, add))
	requests.since()
	ok(t, apply(t, client, add))
	want(t, requests) // it is not tried again at every pass
	tree := testproc.Try(client.Tree(t.Context(), id(1), "cn1")).Or(t)
	if !tree.HasTraits(id(1), "COMPUTE_NODE") {
		t.Error("the known trait is missing")
	}
}

// TestIdentity: a provider under our name or uuid that is not ours is never written to.
func TestIdentity(t *testing.T) { onBundled(t, testIdentity) }

// TestRealIdentity is the same with OpenStack's Placement.
func TestRealIdentity(t *testing.T) { onOpenStack(t, testIdentity) }

func testIdentity(t *testing.T, url string) {
	t.Helper()
	client, requests, _ := observed(t, url)
	ok(t, apply(t, client, firstTree...))
	other, requests2, _ := observed(t, url)
	for name, node := range map[string]struct{ uuid, name string }{
		"our name under another uuid": {id(5), "cn1"}, "our uuid under another name": {id(1), "cn2"},
		"our uuid is a child": {id(2), "cn1_gpu"},
	} {
		if _, err := other.Tree(t.Context(), node.uuid, node.name); !errors.Is(err, reportclient.ErrIdentity) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	for _, r := range append(requests.since()[10:], requests2.since()...) {
		if !strings.HasPrefix(r, "GET ") {
			t.Errorf("written: %s", r)
		}
	}
}

// TestInventoryInUse: what guests use stays, and the refusal names it.
func TestInventoryInUse(t *testing.T) { onBundled(t, testInventoryInUse) }

// TestRealInventoryInUse is the same with OpenStack's Placement.
func TestRealInventoryInUse(t *testing.T) { onOpenStack(t, testInventoryInUse) }

func testInventoryInUse(t *testing.T, url string) {
	t.Helper()
	client, _, _ := observed(t, url)
	ok(t, apply(t, client, firstTree...))
	body := fmt.Sprintf(
		`{"allocations": {%q: {"resources": {"CUSTOM_GPU": 1}}}, "project_id": "p", "user_id": "u", `+
			`"consumer_generation": null}`, id(2))
	req, err := http.NewRequestWithContext(t.Context(),
		http.MethodPut, url+"/allocations/"+id(8), strings.NewReader(body))
	ok(t, err)
	ok(t, authorized(t.Context(), req.Header))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("OpenStack-API-Version", "placement 1.28")
	resp := testproc.Try(http.DefaultClient.Do(req)).Or(t)
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		t.Fatal(resp.Status)
	}
	gone := func(t *testing.T, tr *providertree.Tree) { testproc.Try(tr.Remove(id(2))).Or(t) }
	testproc.ErrorIs(t, apply(t, client, gone), reportclient.ErrProviderInUse, "deleting it: %v")
	usages := testproc.Try(client.Usages(t.Context(), id(2))).Or(t)
	testproc.Same(t, cmp.Diff(providertree.Resources{"CUSTOM_GPU": 1}, usages))
}
