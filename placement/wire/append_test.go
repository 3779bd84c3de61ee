// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// decode reads a body as a strict client would: no key may be unknown to the type.
func decode[T any](t interface{ Fatalf(string, ...any) }, body []byte) (value T) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&value); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return value
}

func TestResponsesDecodeIntoTheirTypes(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	parent := uuidB
	p := wire.ProviderRow{UUID: uuidA, Name: "näme <\">\x01", Generation: 3, Parent: uuidB, Root: uuidB}
	got := decode[wire.ResourceProvider](t, wire.AppendProvider(nil, p, wire.MaxVersion))
	want := wire.ResourceProvider{UUID: uuidA, Name: p.Name, Generation: 3, Parent: &parent,
		Root: uuidB, Links: []wire.Link{
			{Rel: "self", Href: "/resource_providers/" + uuidA},
			{Rel: "inventories", Href: "/resource_providers/" + uuidA + "/inventories"},
			{Rel: "usages", Href: "/resource_providers/" + uuidA + "/usages"},
			{Rel: "aggregates", Href: "/resource_providers/" + uuidA + "/aggregates"},
			{Rel: "traits", Href: "/resource_providers/" + uuidA + "/traits"},
			{Rel: "allocations", Href: "/resource_providers/" + uuidA + "/allocations"},
		}}
	testproc.Samef(t, cmp.Diff(want, got), "provider")
	item := wire.ErrorItem{Status: 409, Title: "Conflict", Detail: "no\nway", Code: wire.CodeConcurrentUpdate,
		RequestID: "req-1", MaxVersion: "1.39", MinVersion: "1.0"}
	if diff := cmp.Diff(wire.ErrorBody{Errors: []wire.ErrorItem{item}},
		decode[wire.ErrorBody](t, item.AppendJSON(nil))); diff != "" {
		t.Errorf("error (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(wire.ProviderTraits{Traits: []string{"A", "B"}, Generation: 1},
		decode[wire.ProviderTraits](t, wire.AppendProviderTraits(nil, []string{"A", "B"}, 1))); diff != "" {
		t.Errorf("traits (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(wire.ResourceClass{Name: "VCPU",
		Links: []wire.Link{{Rel: "self", Href: "/resource_classes/VCPU"}}},
		decode[wire.ResourceClass](t, wire.AppendResourceClass(nil, "VCPU"))); diff != "" {
		t.Errorf("class (-want +got):\n%s", diff)
	}
}

func TestLinksOfAProviderByMicroversion(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for v, links := range map[wire.Version]int{0: 3, 1: 4, 5: 4, 6: 5, 10: 5, 11: 6, wire.MaxVersion: 6} {
		p := decode[wire.ResourceProvider](t, wire.AppendProvider(nil, wire.ProviderRow{UUID: uuidA, Root: uuidA}, v))
		if len(p.Links) != links {
			t.Errorf("%s: %d links, want %d", v, len(p.Links), links)
		}
		testproc.Equal(t, p.Root != "", v.Has(wire.NestedProviders), "%s: the root is shown: %v", v)
	}
}

func TestAllocationRatiosKeepTheirFraction(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for ratio, want := range map[float64]string{1: "1.0",
		16: "16.0", 1.5: "1.5", 0: "0.0", 0.00001: "1e-05", 1e20: "1e+20", 0.1: "0.1"} {
		i := wire.DefaultInventory(1)
		i.AllocationRatio = ratio
		body := string(wire.AppendInventory(nil, i))
		if !strings.HasSuffix(body, `"allocation_ratio":`+want+`}`) {
			t.Errorf("%v is written in %s, want %s", ratio, body, want)
		}
	}
}

func TestAppendingAllocatesNothing(t *testing.T) {
	buffer := make([]byte, 0, 4096)
	row := wire.ProviderRow{UUID: uuidA, Name: "name", Root: uuidA}
	inventory := wire.DefaultInventory(1024)
	for name, write := range map[string]func(){
		"provider":  func() { wire.AppendProvider(buffer, row, wire.MaxVersion) },
		"inventory": func() { wire.AppendInventory(buffer, inventory) },
		"traits":    func() { wire.AppendProviderTraits(buffer, []string{"A", "B"}, 1) },
	} {
		testproc.Equal(t, testing.AllocsPerRun(100, write), 0, "%s: %v allocations", name)
	}
}
