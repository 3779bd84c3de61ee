// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"testing"

	"github.com/compute-agent/compute-agent/placement/api"
	"github.com/compute-agent/compute-agent/placement/transactor"
	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// object is a JSON object in the making.
type object = map[string]any

func text(t testing.TB, body any) string {
	t.Helper()
	b := testproc.Try(json.Marshal(body)).Or(t)
	return string(b)
}

// populatedAPI is an API with hosts that offer VCPU, each with a child that offers nothing, and
// guests that hold one VCPU of a host each, in turn.
type populatedAPI struct {
	http.Handler
	ledger        *transactor.Ledger
	hosts, guests int
}

func hostUUID(n int) string  { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }
func childUUID(n int) string { return fmt.Sprintf("00000000-0000-4000-9000-%012d", n) }
func guestUUID(n int) string { return fmt.Sprintf("00000000-0000-4000-a000-%012d", n) }

func newPopulatedAPI(t testing.TB, hosts, guests int) *populatedAPI {
	t.Helper()
	s := &populatedAPI{ledger: openLedger(t), hosts: hosts, guests: guests}
	s.Handler = newAPI(t, func(c *api.Config) { c.Ledger = s.ledger })
	claims := object{}
	for n := range guests {
		claims[guestUUID(n)] = claim(hostUUID(n%hosts), nil, 1)
	}
	for n := range hosts {
		calls(t, s,
			call{method: "POST", path: "/resource_providers", version: "1.39",
				body: text(t, object{"name": hostUUID(n), "uuid": hostUUID(n)}), status: 200},
			call{method: "POST", path: "/resource_providers", version: "1.39",
				body: text(t,
					object{"name": childUUID(n), "uuid": childUUID(n), "parent_provider_uuid": hostUUID(n)}),
				status: 200},
			call{method: "PUT", path: "/resource_providers/" + hostUUID(n) + "/inventories", version: "1.39",
				body: text(t, offering(0, object{"VCPU": object{"total": 100}})), status: 200},
		)
	}
	calls(t, s, call{method: "POST", path: "/allocations", version: "1.39", body: text(t, claims), status: 204})
	return s
}

func offering(generation int64, inventories object) object {
	return object{"resource_provider_generation": generation, "inventories": inventories}
}

func claim(provider string, generation any, vcpu int) object {
	allocations := object{}
	if vcpu > 0 {
		allocations[provider] = object{"resources": object{"VCPU": vcpu}}
	}
	return object{"allocations": allocations, "project_id": "p", "user_id": "u",
		"consumer_generation": generation, "consumer_type": "INSTANCE"}
}

// downwards is the reshape that moves all VCPU from the hosts to their children, with all that is
// allocated of it: hosts are at generation 2 and the guests at 1.
func (p *populatedAPI) downwards() (inventories, allocations object) {
	inventories, allocations = object{}, object{}
	for n := range p.hosts {
		inventories[hostUUID(n)] = offering(2, object{})
		inventories[childUUID(n)] = offering(0, object{"VCPU": object{"total": 100}})
	}
	for n := range p.guests {
		allocations[guestUUID(n)] = claim(childUUID(n%p.hosts), 1, 1)
	}
	return inventories, allocations
}

// reshape posts it and expects an answer; unless that is 204, not the least may have happened.
func (p *populatedAPI) reshape(t *testing.T, inventories, allocations object, status int, code wire.ErrorCode) {
	t.Helper()
	before := p.ledger.Current()
	call{method: "POST", path: "/reshaper", version: "1.39",
		body:   text(t, object{"inventories": inventories, "allocations": allocations}),
		status: status, code: code}.do(t, p)
	if after := p.ledger.Current(); (after == before) != (status != http.StatusNoContent) {
		t.Errorf("status %d, and the state went from version %d to %d", status, before.Version(), after.Version())
	}
}

// TestReshapeConflicts: whichever provider or consumer of a large reshape is not as the caller knew
// it, the answer is 409 placement.concurrent_update, and nothing happens.
func TestReshapeConflicts(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newPopulatedAPI(t, 6, 12)
	inventories, allocations := s.downwards()
	for uuid, inv := range inventories {
		known := inv.(object)["resource_provider_generation"].(int64)
		for _, wrong := range []int64{known + 1, known + 1000} {
			bad := maps.Clone(inventories)
			bad[uuid] = offering(wrong, inv.(object)["inventories"].(object))
			s.reshape(t, bad, allocations, 409, wire.CodeConcurrentUpdate)
		}
	}
	for n := range s.guests {
		for _, wrong := range []any{nil, 0, 2} {
			bad := maps.Clone(allocations)
			bad[guestUUID(n)] = claim(childUUID(n%s.hosts), wrong, 1)
			s.reshape(t, inventories, bad, 409, wire.CodeConcurrentUpdate)
		}
	}
	// A consumer that is not there is new: null, and nothing else.
	bad := maps.Clone(allocations)
	bad[guestUUID(99)] = claim(childUUID(0), 1, 1)
	s.reshape(t, inventories, bad, 409, wire.CodeConcurrentUpdate)
	bad[guestUUID(99)] = claim(childUUID(0), 0, 1)
	s.reshape(t, inventories, bad, 409, wire.CodeConcurrentUpdate)
	good := maps.Clone(allocations)
	good[guestUUID(99)] = claim(childUUID(0), nil, 1)
	good[guestUUID(98)] = claim("", nil, 0) // no consumer and no resources
	s.reshape(t, inventories, good, 204, "")
	if c, found := s.ledger.Current().Consumer(guestUUID(98)); found {
		t.Errorf("a consumer without allocations is there: %+v", c)
	}
	s.reshape(t, inventories, good, 409, wire.CodeConcurrentUpdate) // once is enough
}

// TestReshapeIsWhole: the last of 200 consumers, or of 100 providers, asks for what cannot be:
// nothing happens, whatever the reason is. Without it all happens.
func TestReshapeIsWhole(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newPopulatedAPI(t, 50, 200)
	inventories, allocations := s.downwards()
	last, lastChild := guestUUID(199), childUUID(49)
	with := func(of object, key string, value any) object {
		of = maps.Clone(of)
		of[key] = value
		return of
	}
	for _, c := range []struct {
		inventories, allocations object
		status                   int
		code                     wire.ErrorCode
	}{
		{inventories, with(allocations, last, claim(lastChild, 1, 101)), 409, wire.CodeUndefined},
		{inventories, with(allocations, last, claim(agg1, 1, 1)), 400, wire.CodeUndefined},
		{inventories, with(allocations, last, claim(hostUUID(49), 1, 1)), 409, wire.CodeInventoryInUse},
		{inventories, with(allocations, last, claim(lastChild, 2, 1)), 409, wire.CodeConcurrentUpdate},
		{inventories, with(allocations, "00000000-0000-4000-a000-999999999999", claim(lastChild, 3, 1)),
			409, wire.CodeConcurrentUpdate},
		{with(inventories, lastChild, offering(0, object{"VCPU": object{"total": 1}})),
			allocations, 409, wire.CodeUndefined},
		{with(inventories, lastChild, offering(0, object{"VCPU": object{"total": 100, "min_unit": 2}})),
			allocations, 409, wire.CodeUndefined},
		{with(inventories, lastChild, offering(0, object{"CUSTOM_NONE": object{"total": 1}})),
			allocations, 400, wire.CodeUndefined},
		{with(inventories, lastChild, offering(0, object{})), allocations, 409, wire.CodeUndefined},
		{with(inventories, lastChild, offering(1, object{"VCPU": object{"total": 100}})), allocations,
			409, wire.CodeConcurrentUpdate},
		{with(inventories, "ffffffff-0000-4000-8000-000000000000", offering(0, object{})), allocations,
			400, wire.CodeProviderNotFound},
		{inventories, object{}, 409, wire.CodeInventoryInUse},
	} {
		s.reshape(t, c.inventories, c.allocations, c.status, c.code)
	}
	s.reshape(t, inventories, allocations, 204, "")
	now := s.ledger.Current()
	for n := range s.hosts {
		from, _ := now.Provider(hostUUID(n))
		to, _ := now.Provider(childUUID(n))
		if len(from.Inventories) != 0 || len(now.ConsumersOn(from.UUID)) != 0 || now.Used(to, "VCPU") != 4 {
			t.Errorf("host %d: %d inventories left, %d used of the child",
				n, len(from.Inventories), now.Used(to, "VCPU"))
		}
		// Emptied: by 1. Filled: once for what it offered, once for what it must, and once for
		// allocations (LP#1817633).
		if from.Generation != 3 || to.Generation != 3 {
			t.Errorf("host %d is at generation %d and its child at %d", n, from.Generation, to.Generation)
		}
	}
	for n := range s.guests {
		if c, ok := now.Consumer(guestUUID(n)); !ok || c.Generation != 2 || len(c.Allocations) != 1 ||
			c.Allocations[0].Provider != childUUID(n%s.hosts) {
			t.Errorf("guest %d is %+v", n, c)
		}
	}
}

// TestOverCommitted: a provider whose inventory shrank below what is used takes allocations as long
// as they do not make it worse (LP#2104040), by each of the calls that write allocations.
func TestOverCommitted(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newAPI(t)
	host(t, h)
	shrink := `{"resource_provider_generation":%d,"inventories":{"VCPU":{"total":4},"MEMORY_MB":{"total":1024,` +
		`"step_size":64}}}`
	put := func(consumer, generation string, vcpu, status int) call {
		return call{method: "PUT", path: "/allocations/" +
			consumer, version: "1.39", body: instance(rp1, generation, vcpu), status: status}
	}
	post := func(a, b string, status int) call {
		return call{method: "POST", path: "/allocations",
			version: "1.39", body: `{"` + inst1 + `":` + a + `,"` + inst2 + `":` + b + `}`, status: status}
	}
	reshape := func(generation int, allocations string, status int) call {
		return call{method: "POST", path: "/reshaper", version: "1.39", status: status,
			body: `{"inventories":{"` + rp1 + `":` +
				fmt.Sprintf(shrink, generation) + `},"allocations":` + allocations + `}`}
	}
	calls(t, h,
		put(inst1, "null", 4, 204), // generation 2
		put(inst2, "null", 3, 204), // 3
		// 4: 7 of 4 are used
		call{method: "PUT", path: "/resource_providers/" +
			rp1 + "/inventories", version: "1.39", body: fmt.Sprintf(shrink, 3), status: 200},
		put(inst1, "1", 5, 409),
		put(inst1, "1", 4, 204), // 5: the same again
		// 6: less, and still too much: 6 of 4
		put(inst1, "2", 3, 204),
		put(guestUUID(1), "null", 1, 409),                                                   // another consumer
		post(instance(rp1, "3", 4), instance(rp1, "1", 3), 409),                             // one more together
		post(instance(rp1, "3", 4), instance(rp1, "1", 2), 204),                             // 7: from one to the other
		post(instance(rp2, "4", 4), instance(rp1, "2", 2), 409),                             // nothing is offered there
		reshape(7, `{"`+inst1+`":`+instance(rp1, "4", 5)+`}`, 409),                          // more
		reshape(7, `{"`+inst1+`":`+instance(rp1, "4", 4)+`}`, 204),                          // 10: the same
		reshape(10, `{}`, 204),                                                              // 12
		reshape(12, `{"`+guestUUID(1)+`":`+instance(rp1, "null", 1)+`}`, 409),               // another consumer
		call{method: "DELETE", path: "/allocations/" + inst1, version: "1.39", status: 204}, // 2 of 4
		put(inst2, "2", 4, 204),
		put(inst2, "3", 5, 409),
	)
}
