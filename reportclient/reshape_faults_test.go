// SPDX-License-Identifier: Apache-2.0

package reportclient_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// answer makes a response in Placement's stead.
func answer(status int, body string) *http.Response {
	return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(body)), Header: http.Header{}}
}

// pass lets a request through to Placement.
func pass(r *http.Request) *http.Response {
	resp, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		panic(err)
	}
	return resp
}

func placementError(status int, code, detail string) string {
	return fmt.Sprintf(`{"errors": [{"status": %d, "code": %q, "detail": %q, "request_id": "req-x"}]}`,
		status, code, detail)
}

var (
	errReset = errors.New("connection reset by peer")
	refused  = &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
)

// fault is what becomes of the requests of one reshape.
type fault struct {
	name string
	// meet is what happens to POST /reshaper: with nil, nil it reaches Placement. after is what
	// happens to the requests after it; late lets the POST arrive then.
	meet  func(t *testing.T, url string, r *http.Request) (*http.Response, error)
	after func(r *http.Request, late func()) (*http.Response, error)
	// want and not are what the error is; none: it happened.
	want, not error
	says      string
	// requests are those from the POST on.
	requests []string
	outcome  string
	layout   string // "old" or "new"
}

var (
	compared = []string{"POST /reshaper", "GET /resource_providers/#1/inventories",
		"GET /resource_providers/#2/inventories", "GET /allocations/#11", "GET /allocations/#12"}
	fenced = append(compared[:len(compared):len(compared)], "PUT /resource_providers/#1/inventories")
)

// faults is the matrix: whatever happens to the request or its answer, Placement has the old layout
// or the new one, the error and the journal say which, and the next try arrives.
var faults = []fault{
	{name: "none", requests: []string{"POST /reshaper"}, outcome: "happened", layout: "new"},
	{
		name: "a claim between gathering and posting",
		want: reportclient.ErrConflict, not: reportclient.ErrReshapeRefused, says: "placement.concurrent_update",
		meet: func(t *testing.T, url string, _ *http.Request) (*http.Response, error) {
			claim(t, url, migration, resources{cn1: {"VGPU": 1}})
			return nil, nil
		},
		requests: []string{"POST /reshaper"}, outcome: "conflict", layout: "old",
	},
	{
		name: "a consumer that lets go between gathering and posting", want: reportclient.ErrConflict,
		not: reportclient.ErrReshapeRefused, says: "placement.concurrent_update",
		meet: func(t *testing.T, url string, _ *http.Request) (*http.Response, error) {
			asAdmin(t, "1.37", http.MethodDelete, url+"/allocations/"+id(bob), "")
			return nil, nil
		},
		requests: []string{"POST /reshaper"}, outcome: "conflict", layout: "old",
	},
	{
		name: "the answer lost, after it happened",
		meet: func(_ *testing.T, _ string, r *http.Request) (*http.Response, error) {
			_ = pass(r).Body.Close()
			return nil, errReset
		},
		requests: compared, outcome: "happened", layout: "new",
	},
	{
		name: "the answer lost, before it happened",
		want: reportclient.ErrConflict, not: reportclient.ErrUnavailable, says: "did not happen",
		meet:     func(*testing.T, string, *http.Request) (*http.Response, error) { return nil, errReset },
		requests: fenced, outcome: "refused", layout: "old",
	},
	{
		name: "the answer lost, before it happened, and another client wrote", want: reportclient.ErrConflict,
		not: reportclient.ErrUnavailable, says: "did not happen",
		meet: func(t *testing.T, url string, _ *http.Request) (*http.Response, error) {
			claim(t, url, migration, resources{cn1: {"VGPU": 1}})
			return nil, errReset
		},
		requests: compared, outcome: "refused", layout: "old", // it can no longer happen, so it needs no fence
	},
	{
		name: "the answer lost, and the request arrives while it is looked for",
		meet: func(*testing.T, string, *http.Request) (*http.Response, error) { return nil, errReset },
		after: func(r *http.Request, late func()) (*http.Response, error) {
			if r.Method == http.MethodPut {
				late()
			}
			return nil, nil
		},
		requests: append(append([]string{}, fenced...), compared[1:]...), outcome: "happened", layout: "new",
	},
	{
		name: "the answer lost, and the request arrives between two of the looks",
		meet: func(*testing.T, string, *http.Request) (*http.Response, error) { return nil, errReset },
		after: func(r *http.Request, late func()) (*http.Response, error) {
			if strings.Contains(r.URL.Path, id(gpu0)) {
				late()
			}
			return nil, nil
		},
		requests: append(append([]string{}, compared...), compared[1:]...), outcome: "happened", layout: "new",
	},
	{
		name: "the answer lost, and Placement away", want: reportclient.ErrUnavailable, not: reportclient.ErrConflict,
		says: "it is unknown whether",
		meet: func(_ *testing.T, _ string, r *http.Request) (*http.Response, error) {
			_ = pass(r).Body.Close()
			return nil, errReset
		},
		after:    func(*http.Request, func()) (*http.Response, error) { return nil, refused },
		requests: compared[:2], outcome: "unknown", layout: "new",
	},
	{
		name: "the answer lost, and Placement away while it is fenced off", want: reportclient.ErrUnavailable,
		says: "it is unknown whether",
		meet: func(*testing.T, string, *http.Request) (*http.Response, error) { return nil, errReset },
		after: func(r *http.Request, _ func()) (*http.Response, error) {
			if r.Method == http.MethodPut {
				return answer(http.StatusServiceUnavailable, ""), nil
			}
			return nil, nil
		},
		requests: fenced, outcome: "unknown", layout: "old",
	},
	{
		name: "no connection", want: reportclient.ErrUnavailable, says: "refused",
		meet:     func(*testing.T, string, *http.Request) (*http.Response, error) { return nil, refused },
		requests: []string{"POST /reshaper"}, outcome: "refused", layout: "old",
	},
	{
		name: "500 from Placement, which did nothing",
		want: reportclient.ErrConflict, not: reportclient.ErrUnavailable, says: "status 500",
		meet: func(*testing.T, string, *http.Request) (*http.Response, error) {
			return answer(http.StatusInternalServerError, placementError(500, "placement.undefined_code", "deadlock")),
				nil
		},
		requests: fenced, outcome: "refused", layout: "old",
	},
	{
		name: "503 from a proxy, after it happened",
		meet: func(_ *testing.T, _ string, r *http.Request) (*http.Response, error) {
			_ = pass(r).Body.Close()
			return answer(http.StatusServiceUnavailable, "<html>"), nil
		},
		requests: compared, outcome: "happened", layout: "new",
	},
	{
		name: "503 from a proxy, before it happened", want: reportclient.ErrConflict, says: "status 503",
		meet: func(*testing.T, string, *http.Request) (*http.Response, error) {
			return answer(http.StatusServiceUnavailable, ""), nil
		},
		requests: fenced, outcome: "refused", layout: "old",
	},
	{
		name: "garbage with status 200", want: reportclient.ErrConflict, says: "please log in",
		meet: func(*testing.T, string, *http.Request) (*http.Response, error) {
			return answer(http.StatusOK, "<html>please log in"), nil
		},
		requests: fenced, outcome: "refused", layout: "old",
	},
	{
		name: "garbage with status 400, after it happened",
		meet: func(_ *testing.T, _ string, r *http.Request) (*http.Response, error) {
			_ = pass(r).Body.Close()
			return answer(http.StatusBadRequest, "\xff\xfe not JSON"), nil
		},
		requests: compared, outcome: "happened", layout: "new",
	},
	{
		name: "400", want: reportclient.ErrReshapeRefused,
		not: reportclient.ErrConflict, says: "malformed reshaper data",
		meet: func(*testing.T, string, *http.Request) (*http.Response, error) {
			return answer(http.StatusBadRequest,
				placementError(400, "placement.undefined_code", "malformed reshaper data")), nil
		},
		requests: []string{"POST /reshaper"}, outcome: "refused", layout: "old",
	},
	{
		name: "403", want: reportclient.ErrReshapeRefused, not: reportclient.ErrConflict, says: "role service",
		meet: func(*testing.T, string, *http.Request) (*http.Response, error) {
			return answer(http.StatusForbidden,
				placementError(403, "placement.undefined_code", "Policy does not allow")), nil
		},
		requests: []string{"POST /reshaper"}, outcome: "refused", layout: "old",
	},
	{
		name: "409, inventory in use", want: reportclient.ErrInventoryInUse, not: reportclient.ErrConflict,
		says: "placement.inventory.inuse",
		meet: func(*testing.T, string, *http.Request) (*http.Response, error) {
			return answer(http.StatusConflict, placementError(409, "placement.inventory.inuse", "VGPU in use")), nil
		},
		requests: []string{"POST /reshaper"}, outcome: "refused", layout: "old",
	},
	{
		name: "409, it does not fit", want: reportclient.ErrReshapeRefused,
		not: reportclient.ErrConflict, says: "max_unit",
		meet: func(*testing.T, string, *http.Request) (*http.Response, error) {
			return answer(http.StatusConflict,
				placementError(409, "placement.undefined_code", "Unable to allocate inventory")), nil
		},
		requests: []string{"POST /reshaper"}, outcome: "refused", layout: "old",
	},
}

func TestReshapeFaults(t *testing.T) { onEmptyBundled(t, testReshapeFaults) }

// TestRealReshapeFaults is the same with OpenStack's Placement.
func TestRealReshapeFaults(t *testing.T) { onEmptyOpenStack(t, testReshapeFaults) }

func testReshapeFaults(t *testing.T, empty func(*testing.T) string) {
	t.Helper()
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) { f.run(t, empty(t)) })
	}
}

func (f fault) run(t *testing.T, url string) {
	gpus.prepare(t, url)
	log := &journal{}
	requests := &counter{}
	client := newClient(t, url, func(c *reportclient.Config) {
		c.Transport, c.Authorize, c.ReshapeLog, c.Retries = requests, authorized, log, 0
	})
	known := testproc.Try(client.Tree(t.Context(), id(cn1), "cn1")).Or(t)
	before := testproc.Try(client.AllocationsForProviderTree(t.Context(), id(cn1))).Or(t)
	desired, after := gpus.apply(t, known, before)
	plan := client.PlanReshape(known, desired, before, after)

	posted := false
	late := func() { t.Error("there is no reshape to arrive late") }
	requests.fail = func(r *http.Request) (*http.Response, error) {
		switch {
		case r.URL.Path == "/reshaper":
			if posted {
				t.Error("the reshape is posted twice")
			}
			posted = true
			requests.since()
			requests.seen = []string{"POST /reshaper"}
			if f.meet == nil {
				return nil, nil // the transport sends it
			}
			body := testproc.Try(io.ReadAll(r.Body)).Or(t)
			again := func() *http.Request {
				sent := r.Clone(t.Context())
				sent.Body = io.NopCloser(bytes.NewReader(body))
				return sent
			}
			late = sync.OnceFunc(func() { _ = pass(again()).Body.Close() })
			resp, err := f.meet(t, url, again())
			if resp == nil && err == nil {
				resp = pass(again())
			}
			return resp, err
		case posted && f.after != nil:
			return f.after(r, late)
		}
		return nil, nil
	}
	err := client.Apply(t.Context(), id(cn1), plan)
	want(t, requests, f.requests...)
	switch {
	case f.want == nil:
		ok(t, err)
	case !errors.Is(err, f.want) || f.not != nil && errors.Is(err, f.not) || !strings.Contains(err.Error(), f.says):
		t.Errorf("got %v, want %v and %q", err, f.want, f.says)
	}
	testproc.Samef(t, cmp.Diff([]string{"begin 1", f.outcome + " 1"}, log.events), "journal")
	requests.fail = nil
	f.compare(t, client, log.begun)

	// The next try finds out by itself what there is to do, and arrives. After a conflict nothing
	// is believed any more, after another refusal only what the reshape named is looked at again.
	conflict := errors.Is(err, reportclient.ErrConflict)
	requests.since()
	known = testproc.Try(client.Tree(t.Context(), id(cn1), "cn1")).Or(t)
	looked := requests.since()
	if f.outcome != "unknown" && slices.Contains(looked, "GET /resource_providers/#9/inventories") != conflict {
		t.Errorf("read for the next try: %v", looked)
	}
	before = testproc.Try(client.AllocationsForProviderTree(t.Context(), id(cn1))).Or(t)
	_, moved := known.Inventory(id(gpu0), "VGPU")
	if moved != (f.layout == "new") {
		t.Errorf("the child has inventory: %t, and the layout should be the %s one", moved, f.layout)
	}
	desired, after = known.Clone(), before.Clone()
	if !moved {
		desired, after = gpus.apply(t, known, before)
	}
	ok(t, client.Apply(t.Context(), id(cn1), client.PlanReshape(known, desired, before, after)))
	checkPlacement(t, url, desired, after)
}

// compare: what a journal holds is enough to find out later.
func (f fault) compare(t *testing.T, client *reportclient.Client, begun *reportclient.Reshape) {
	t.Helper()
	wanted := map[string]reportclient.ReshapeOutcome{"new": reportclient.ReshapeHappened,
		"old": reportclient.ReshapeRefused}[f.layout]
	got := testproc.Try(client.CompareReshape(t.Context(), begun)).Or(t)
	testproc.Equal(t, got, wanted, "compared later: %s")
}

// apply makes the edits that are not made yet, and moves what is held of the root.
func (e example) apply(
	t *testing.T, known *providertree.Tree, before providertree.Allocations,
) (*providertree.Tree, providertree.Allocations) {
	t.Helper()
	desired, after := known.Clone(), before.Clone()
	for _, edit := range e.edits {
		edit(t, desired)
	}
	for consumer, c := range after {
		if n := c.Resources[id(cn1)]["VGPU"]; n > 0 {
			delete(c.Resources[id(cn1)], "VGPU")
			if c.Resources[id(gpu0)] == nil {
				c.Resources[id(gpu0)] = map[string]int64{}
			}
			c.Resources[id(gpu0)]["VGPU"] += n
			after[consumer] = c
		}
	}
	return desired, after
}

// TestReshapeBuildsUpon: a reshape is not posted when something that it names could not be made, or
// was written to by others.
func TestReshapeBuildsUpon(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	known := knownTree(t)
	desired := known.Clone()
	child(cn1, gpu1, "cn1_new")(t, desired)
	noInventory(gpu0, "VGPU")(t, desired)
	inventory(gpu1, "CUSTOM_A40", providertree.Inventory{Total: 2})(t, desired)
	traits(gpu0, "OWNER_NOVA")(t, desired)
	traits(cn1, "OWNER_NOVA")(t, desired)
	before := allocations(map[int]resources{alice: {gpu0: {"VGPU": 1}, cn1: {"VCPU": 1}}})
	after := before.Clone()
	move{alice, gpu0, "VGPU", gpu1, "CUSTOM_A40", 1}.apply(after)
	all := []string{"PUT /resource_classes/CUSTOM_A40", "POST /resource_providers", "PUT /resource_providers/#2/traits",
		"PUT /resource_providers/#1/traits"}
	for name, c := range map[string]struct {
		path string
		code string
		want error
	}{
		"a class":    {"/resource_classes/CUSTOM_A40", "placement.undefined_code", reportclient.ErrConflict},
		"a provider": {"/resource_providers", "placement.duplicate_name", reportclient.ErrDuplicate},
		"a writer": {"/resource_providers/" + id(gpu0) + "/traits",
			"placement.concurrent_update", reportclient.ErrConflict},
		// its inventory stays, and an allocation of it is written again
		"a writer to another provider": {"/resource_providers/" + id(cn1) + "/traits",
			"placement.concurrent_update", reportclient.ErrConflict},
	} {
		t.Run(name, func(t *testing.T) {
			requests := &counter{fail: func(r *http.Request) (*http.Response, error) {
				switch {
				case r.URL.Path == c.path:
					return answer(http.StatusConflict, placementError(409, c.code, "")), nil
				case strings.HasSuffix(r.URL.Path, "/traits"):
					return answer(http.StatusOK, `{"resource_provider_generation": 4, "traits": ["OWNER_NOVA"]}`), nil
				}
				return answer(http.StatusOK, fmt.Sprintf(`{"uuid": %q, "name": "cn1_new", "generation": 0}`, id(gpu1))),
					nil
			}}
			log := &journal{}
			client := newClient(t,
				"http://placement.invalid", func(c *reportclient.Config) { c.Transport, c.ReshapeLog = requests, log })
			err := client.Apply(t.Context(), id(cn1), reportclient.NewReshapePlan(known, desired, before, after))
			testproc.ErrorIs(t, err, c.want, "got %v")
			want(t, requests, all...)
			if n := strings.Count(err.Error(), "; "); n != 1 || !strings.Contains(err.Error(), "more were skipped") {
				t.Errorf("more than one operation failed: %v", err)
			}
			if len(log.events) > 0 {
				t.Errorf("noted down: %v", log.events)
			}
		})
	}
}

// TestReshapeWithoutTheRole: an administrator may do everything else, and the error names what is
// missing.
func TestReshapeWithoutTheRole(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	client, requests, _, makePlan := gpus.prepare(t, bundled(t, placement.Auth{Strategy: placement.NoAuth}))
	plan, _, _ := makePlan()
	requests.since()
	err := client.Apply(t.Context(), id(cn1), plan)
	if !errors.Is(err, reportclient.ErrReshapeRefused) || !errors.Is(err, reportclient.ErrRefused) ||
		!strings.Contains(err.Error(), "role service") || !strings.Contains(err.Error(), "status 403") {
		t.Errorf("got %v", err)
	}
	want(t, requests, "POST /resource_providers", "POST /reshaper")
}

// TestReshapeWithoutCredentials: what was not sent was not refused by Placement, and needs no
// advice about the reshape.
func TestReshapeWithoutCredentials(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	log := &journal{}
	client := newClient(t, "http://placement.invalid", func(c *reportclient.Config) {
		c.ReshapeLog = log
		c.Authorize = func(context.Context, http.Header) error { return errors.New("no password") }
	})
	err := client.Apply(t.Context(), id(cn1), oneMove(t).Reshape.Plan())
	if !errors.Is(err, reportclient.ErrRefused) || errors.Is(err, reportclient.ErrReshapeRefused) ||
		!strings.Contains(err.Error(), "no password") {
		t.Errorf("got %v", err)
	}
	testproc.Samef(t, cmp.Diff([]string{"begin 1", "refused 1"}, log.events), "journal")
}

// TestReshapeCanceled: an agent that is being stopped does not look any more; the journal says that
// it is not known.
func TestReshapeCanceled(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	ctx, cancel := context.WithCancel(t.Context())
	log := &journal{}
	requests := &counter{fail: func(*http.Request) (*http.Response, error) { cancel(); return nil, context.Canceled }}
	client := newClient(t, "http://placement.invalid",
		func(c *reportclient.Config) { c.Transport, c.ReshapeLog = requests, log })
	err := client.Apply(ctx, id(cn1), oneMove(t).Reshape.Plan())
	if !errors.Is(err, reportclient.ErrUnavailable) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	want(t, requests, "POST /reshaper")
	testproc.Samef(t, cmp.Diff([]string{"begin 1", "unknown 1"}, log.events), "journal")
}

// TestReshapeIsNeverRepeated: with retries allowed, neither a lost answer nor an overloaded server
// makes the client post again.
func TestReshapeIsNeverRepeated(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, meet := range map[string]func() (*http.Response, error){
		"lost": func() (*http.Response, error) { return nil, errReset },
		"503":  func() (*http.Response, error) { return answer(http.StatusServiceUnavailable, ""), nil },
		"429":  func() (*http.Response, error) { return answer(http.StatusTooManyRequests, ""), nil },
	} {
		t.Run(name, func(t *testing.T) {
			requests := &counter{}
			requests.fail = func(r *http.Request) (*http.Response, error) {
				if r.URL.Path == "/reshaper" {
					return meet()
				}
				return answer(http.StatusForbidden, ""), nil
			}
			client := newClient(t,
				"http://placement.invalid", func(c *reportclient.Config) { c.Transport, c.Retries = requests, 5 })
			if err := client.Apply(t.Context(), id(cn1), oneMove(t).Reshape.Plan()); err == nil {
				t.Error("no error")
			}
			want(t, requests, "POST /reshaper", "GET /resource_providers/#1/inventories")
		})
	}
}
