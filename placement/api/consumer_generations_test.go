// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/placement/api"
	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/transactor"
	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// The tests of this file follow the specification "Add Generation to Consumers" of OpenStack Nova,
// in its order. Its "microversion 1.X" is 1.28.

// strays is a store that an old Placement filled: inst1 and inst2 hold one VCPU of rp1 each and
// have no consumer record.
type strays struct{ noStore }

func (s *strays) Load(context.Context) (*ledger.State, error) {
	state := &ledger.State{
		Version:   s.version,
		Providers: []ledger.ProviderRow{{ID: 1, UUID: rp1, Name: "node", Root: 1, Generation: 1}},
		Inventories: []ledger.InventoryRow{{Provider: 1,
			Class: 0, Total: 8, MinUnit: 1, MaxUnit: 8, StepSize: 1, AllocationRatio: 1}},
	}
	for id, name := range ledger.StandardClasses() {
		state.Classes = append(state.Classes, ledger.NamedRow{ID: int64(id), Name: name})
	}
	for _, consumer := range []string{inst1, inst2} {
		state.Allocations = append(state.Allocations,
			ledger.AllocationRow{Provider: 1, Class: 0, Consumer: consumer, Used: 1})
	}
	return state, nil
}

// incomplete is whom consumers without owners are given to.
var incomplete = api.Options{IncompleteProjectID: "no-project", IncompleteUserID: "no-user"}

// newStrayAPI is an API on a database with strays.
func newStrayAPI(t *testing.T) *api.API {
	t.Helper()
	l := testproc.Try(transactor.Open(t.Context(), &strays{}, transactor.Options{})).Or(t)
	t.Cleanup(func() { testproc.NoError(t, l.Close()) })
	return newAPI(t, func(c *api.Config) { c.Ledger, c.Options = l, incomplete })
}

// consumerBody is allocations of a consumer as a microversion writes them. From 1.28 on it has the
// generation, unless that is "".
func consumerBody(v wire.Version, generation string, vcpu int) string {
	var b strings.Builder
	switch {
	case vcpu == 0:
		b.WriteString(`{"allocations":{}`)
	case v.Has(wire.AllocationsByUUID):
		fmt.Fprintf(&b, `{"allocations":{%q:{"resources":{"VCPU":%d}}}`, rp1, vcpu)
	default:
		fmt.Fprintf(&b, `{"allocations":[{"resource_provider":{"uuid":%q},"resources":{"VCPU":%d}}]`, rp1, vcpu)
	}
	if v.Has(wire.ProjectAndUser) {
		b.WriteString(`,"project_id":"proj","user_id":"user"`)
	}
	if v.Has(wire.ConsumerGenerations) && generation != "" {
		b.WriteString(`,"consumer_generation":` + generation)
	}
	if v.Has(wire.ConsumerTypes) {
		b.WriteString(`,"consumer_type":"INSTANCE"`)
	}
	return b.String() + "}"
}

func version(t *testing.T, text string) wire.Version {
	t.Helper()
	return testproc.Try(wire.ParseVersion(text)).Or(t)
}

// expectConsumer reads what inst1 is, at 1.28.
func expectConsumer(t *testing.T, h http.Handler, project, user string, generation int64, vcpu int64) {
	t.Helper()
	got := decoded[wire.ConsumerAllocations](t,
		call{method: "GET", path: "/allocations/" + inst1, version: "1.28", status: 200}.do(t, h))
	if got.ConsumerGeneration == nil {
		t.Fatalf("there is no consumer: %+v", got)
	}
	if got.ProjectID != project || got.UserID != user ||
		*got.ConsumerGeneration != generation || got.Allocations[rp1]["VCPU"] != vcpu {
		t.Errorf("the consumer is of %s and %s, at generation %d, and holds %+v; want %s, %s, %d, %d VCPU",
			got.ProjectID, got.UserID, *got.ConsumerGeneration, got.Allocations, project, user, generation, vcpu)
	}
}

// TestWritingAConsumer: "PUT /allocations/{consumer_uuid}" and "POST /allocations", for each of the
// three cases (nothing is there; allocations without a record; both) and each range of
// microversions.
func TestWritingAConsumer(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const (
		nothing = "no allocations"
		stray   = "allocations without a consumer record"
		both    = "allocations and a consumer record"
	)
	for _, c := range []struct {
		there, version string
		// generation is that of the body; of the last case 1 is right, of the others null.
		generation string
		status     int
		// of the consumer afterwards
		project, user string
		after         int64
	}{
		{nothing, "1.0", "", 204, "no-project", "no-user", 1},
		{nothing, "1.7", "", 204, "no-project", "no-user", 1},
		{nothing, "1.8", "", 204, "proj", "user", 1},
		{nothing, "1.27", "", 204, "proj", "user", 1},
		{nothing, "1.28", "null", 204, "proj", "user", 1},
		{nothing, "1.39", "null", 204, "proj", "user", 1},
		{nothing, "1.28", "0", 409, "", "", 0},
		{nothing, "1.28", "1", 409, "", "", 0},
		{nothing, "1.28", "", 400, "", "", 0},

		{stray, "1.0", "", 204, "no-project", "no-user", 1},
		{stray, "1.7", "", 204, "no-project", "no-user", 1},
		{stray, "1.8", "", 204, "proj", "user", 1},
		{stray, "1.27", "", 204, "proj", "user", 1},
		{stray, "1.28", "null", 204, "proj", "user", 1},
		{stray, "1.39", "null", 204, "proj", "user", 1},
		{stray, "1.28", "0", 409, "", "", 0},
		{stray, "1.28", "1", 409, "", "", 0},
		{stray, "1.28", "", 400, "", "", 0},

		{both, "1.0", "", 204, "no-project", "no-user", 2},
		{both, "1.8", "", 204, "proj", "user", 2},
		{both, "1.27", "", 204, "proj", "user", 2},
		{both, "1.28", "1", 204, "proj", "user", 2},
		{both, "1.39", "1", 204, "proj", "user", 2},
		{both, "1.28", "null", 409, "", "", 0},
		{both, "1.28", "0", 409, "", "", 0},
		{both, "1.28", "2", 409, "", "", 0},
		{both, "1.28", "", 400, "", "", 0},
		{both, "1.28", `"1"`, 400, "", "", 0},
		{both, "1.28", "1.5", 400, "", "", 0},
	} {
		for _, method := range []string{"PUT", "POST"} {
			v := version(t, c.version)
			if method == "POST" && !v.Has(wire.PostAllocations) {
				continue // 1.13 brought it
			}
			t.Run(fmt.Sprintf("%s/%s at %s with %s", c.there, method, c.version, c.generation), func(t *testing.T) {
				var h *api.API
				if c.there == stray {
					h = newStrayAPI(t)
				} else {
					h = newAPI(t, func(cfg *api.Config) { cfg.Options = incomplete })
					host(t, h)
				}
				if c.there == both {
					call{method: "PUT", path: "/allocations/" + inst1, version: "1.28",
						body: consumerBody(version(t, "1.28"), "null", 1), status: 204}.do(t, h)
				}
				write := call{method: method, path: "/allocations/" + inst1, version: c.version,
					body: consumerBody(v, c.generation, 3), status: c.status}
				if method == "POST" {
					write.path, write.body = "/allocations", `{"`+inst1+`":`+write.body+`}`
				}
				before := call{method: "GET", path: "/allocations/" + inst1, version: "1.28", status: 200}.do(t, h).
					Body.String()
				w := write.do(t, h)
				if c.status == 204 {
					expectConsumer(t, h, c.project, c.user, c.after, 3)
					return
				}
				if c.status == 409 && v.Has(wire.ErrorCodes) && errorOf(t, w).Code != wire.CodeConcurrentUpdate {
					t.Errorf("the code is %s", errorOf(t, w).Code)
				}
				if after := (call{method: "GET", path: "/allocations/" + inst1, version: "1.28", status: 200}).do(t, h).
					Body.String(); after != before {
					t.Errorf("it was refused, and went from %s to %s", before, after)
				}
			})
		}
	}
}

// TestEveryWriteMovesTheGeneration: "any change of allocations of the consumer changes its
// generation", whatever writes them, and the old one is refused from then on. The record goes with
// its last allocation, and begins again.
func TestEveryWriteMovesTheGeneration(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newAPI(t, func(c *api.Config) { c.Options = incomplete })
	host(t, h)
	const mine = "/allocations/" + inst1
	v28 := version(t, "1.28")
	put := func(version string, generation string, vcpu, status int) call {
		v := testproc.Try(wire.ParseVersion(version)).Or(t)
		return call{method: "PUT", path: mine, version: version,
			body: consumerBody(v, generation, vcpu), status: status}
	}
	calls(t, h, put("1.28", "null", 1, 204), put("1.28", "1", 1, 204),
		put("1.28", "1", 1, 409), put("1.12", "", 2, 204))
	expectConsumer(t, h, "proj", "user", 3, 2)
	calls(t, h, call{method: "POST", path: "/allocations",
		version: "1.13", body: `{"` + inst1 + `":` + consumerBody(version(t, "1.13"), "", 1) + `}`, status: 204})
	expectConsumer(t, h, "proj", "user", 4, 1)
	calls(t, h, call{method: "POST", path: "/reshaper", version: "1.30", status: 204,
		body: `{"inventories":{"` + rp2 +
			`":{"resource_provider_generation":0,"inventories":{"VCPU":{"total":1}}}},"allocations":{"` + inst1 + `":` +
			consumerBody(v28, "4", 2) + `}}`})
	expectConsumer(t, h, "proj", "user", 5, 2)
	// The safe way to delete: an empty PUT or POST at the right generation. Before 1.28, PUT
	// has no such way.
	calls(t, h,
		put("1.27", "", 0, 400),
		put("1.28", "4", 0, 409),
		put("1.28", "null", 0, 409),
		put("1.28", "5", 0, 204),
		call{method: "DELETE", path: mine, version: "1.28", status: 404},
		put("1.28", "5", 1, 409), // what is gone has no generation
		put("1.28", "null", 1, 204),
	)
	expectConsumer(t, h, "proj", "user", 1, 1)
	calls(t, h,
		call{method: "POST", path: "/allocations", version: "1.28", body: `{"` + inst1 + `":` +
			consumerBody(v28, "2", 0) + `}`, status: 409, code: wire.CodeConcurrentUpdate},
		call{method: "POST", path: "/allocations", version: "1.28", body: `{"` + inst1 + `":` +
			consumerBody(v28, "1", 0) + `}`, status: 204},
		put("1.28", "null", 1, 204),
		// DELETE knows no generation, at any microversion.
		call{method: "DELETE", path: mine, version: "1.39", status: 204},
		put("1.28", "null", 1, 204),
	)
	expectConsumer(t, h, "proj", "user", 1, 1)
}

// TestWhereGenerationsShow: the two GETs that show allocations have the generation from 1.28 on,
// and not before.
func TestWhereGenerationsShow(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newAPI(t)
	host(t, h)
	calls(t, h, call{method: "PUT", path: "/allocations/" +
		inst1, version: "1.28", body: consumerBody(version(t, "1.28"), "null", 1), status: 204})
	for _, path := range []string{"/allocations/" + inst1, "/resource_providers/" + rp1 + "/allocations"} {
		for version, want := range map[string]int{"1.27": 0, "1.28": 1, "1.39": 1} {
			w := call{method: "GET", path: path, version: version, status: 200}.do(t, h)
			if got := strings.Count(w.Body.String(), `"consumer_generation":1`); got != want ||
				strings.Count(w.Body.String(), "consumer_generation") != want {
				t.Errorf("%s at %s: %s", path, version, w.Body)
			}
		}
	}
}

// TestOneOfManyWritersOfAConsumerWins: "if another process modifies the allocations of the same
// consumer at the same time", one wins, and the others get a conflict.
func TestOneOfManyWritersOfAConsumerWins(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newAPI(t)
	host(t, h)
	generation := "null"
	for round := range 5 {
		var wg sync.WaitGroup
		statuses := make(chan int, 8)
		for g := range 8 {
			wg.Go(func() {
				body := instance(rp1, generation, 1)
				if g%2 == 0 {
					statuses <- exchangeOnce(h, "PUT", "/allocations/"+inst1, body)
				} else {
					statuses <- exchangeOnce(h, "POST", "/allocations", `{"`+inst1+`":`+body+`}`)
				}
			})
		}
		wg.Wait()
		close(statuses)
		count := map[int]int{}
		for s := range statuses {
			count[s]++
		}
		testproc.Samef(t, cmp.Diff(map[int]int{204: 1, 409: 7}, count), "round %d", round)
		generation = fmt.Sprint(round + 1)
	}
}

// TestPostRefusesAllForOne: POST checks the generation of each consumer, and one that is wrong is
// enough.
func TestPostRefusesAllForOne(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newAPI(t)
	host(t, h)
	calls(t, h, call{method: "PUT", path: "/allocations/" +
		inst1, version: "1.39", body: instance(rp1, "null", 1), status: 204})
	post := func(first, second string, status int) call {
		return call{method: "POST", path: "/allocations", version: "1.39", status: status,
			body: `{"` + inst1 + `":` + instance(rp1, first, 2) + `,"` + inst2 + `":` + instance(rp1, second, 2) + `}`}
	}
	calls(t, h, post("null", "null", 409), post("1", "1", 409), post("2", "null", 409))
	expectConsumer(t, h, "proj", "user", 1, 1)
	left := decoded[wire.ConsumerAllocations](t,
		call{method: "GET", path: "/allocations/" + inst2, version: "1.39", status: 200}.do(t, h))
	if len(left.Allocations) != 0 {
		t.Errorf("a refused POST left %+v", left)
	}
	calls(t, h, post("1", "null", 204))
	expectConsumer(t, h, "proj", "user", 2, 2)
}

// TestAllocationsIgnoreTheProvidersGeneration: the generation of a provider that GET
// /allocations/{consumer} shows can be sent back, and is not compared with anything. Only a reshape
// names generations of providers that must hold, of those whose inventories it replaces.
func TestAllocationsIgnoreTheProvidersGeneration(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newAPI(t)
	host(t, h)
	with := func(generation string) string {
		return strings.Replace(instance(rp1, generation, 2), `{"resources"`, `{"generation":77,"resources"`, 1)
	}
	calls(t, h,
		call{method: "PUT", path: "/allocations/" + inst1, version: "1.39", body: with("null"), status: 204},
		call{method: "PUT", path: "/allocations/" + inst1, version: "1.12", status: 204,
			body: `{"allocations":{"` + rp1 +
				`":{"generation":0,"resources":{"VCPU":1}}},"project_id":"proj","user_id":"user"}`},
		call{method: "POST", path: "/allocations", version: "1.39", body: `{"` + inst1 + `":` +
			with("2") + `}`, status: 204},
		call{method: "PUT", path: "/allocations/" + inst1,
			version: "1.39", body: strings.Replace(with("3"), "77", `"x"`, 1), status: 400},
	)
	expectConsumer(t, h, "proj", "user", 3, 2)
}
