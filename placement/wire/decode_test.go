// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const (
	uuidA = "4e8e5957-649f-477b-9e5b-f1f75b21c03c"
	uuidB = "5bcff1f0-2ea8-4a55-a9de-2f6cc7b3f3a1"
)

// decoders are all strict decoders, as functions of a body and a version.
var decoders = map[string]func(body string, v wire.Version) (any, error){
	"provider create": func(b string, v wire.Version) (any, error) { return wire.DecodeProviderCreate([]byte(b), v) },
	"provider update": func(b string, v wire.Version) (any, error) { return wire.DecodeProviderUpdate([]byte(b), v) },
	"inventories":     func(b string, _ wire.Version) (any, error) { return wire.DecodeInventories([]byte(b)) },
	"one inventory":   func(b string, _ wire.Version) (any, error) { return wire.DecodeOneInventory([]byte(b)) },
	"new inventory":   func(b string, _ wire.Version) (any, error) { return wire.DecodeInventoryCreate([]byte(b)) },
	"aggregates":      func(b string, v wire.Version) (any, error) { return wire.DecodeAggregates([]byte(b), v) },
	"traits":          func(b string, _ wire.Version) (any, error) { return wire.DecodeProviderTraits([]byte(b)) },
	"class":           func(b string, _ wire.Version) (any, error) { return wire.DecodeResourceClass([]byte(b)) },
	"put allocations": func(b string, v wire.Version) (any, error) {
		return wire.DecodeConsumerAllocations([]byte(b),
			v)
	},
	"allocations": func(b string, v wire.Version) (any, error) { return wire.DecodeAllocations([]byte(b), v) },
	"reshape":     func(b string, v wire.Version) (any, error) { return wire.DecodeReshape([]byte(b), v) },
}

func TestBodiesByMicroversion(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const (
		a     = `"` + uuidA + `"`
		owner = `"project_id":"p","user_id":"u"`
		some  = `"allocations":{` + a + `:{"resources":{"VCPU":1}}}`
		list  = `"allocations":[{"resource_provider":{"uuid":` + a + `},"resources":{"VCPU":1}}]`
	)
	const never, always, newest = -1, 0, int(wire.MaxVersion)
	// Each body is good from one microversion to another, and refused before and after.
	for _, c := range []struct {
		decoder, body string
		from, to      int
	}{
		{"provider create", `{"name":"n"}`, always, newest},
		{"provider create", `{"name":"n","uuid":` + a + `}`, always, newest},
		{"provider create", `{"name":"n","parent_provider_uuid":` + a + `}`, 14, newest},
		{"provider create", `{"name":"n","parent_provider_uuid":null}`, 14, newest},
		{"provider create", `{"uuid":` + a + `}`, never, 0},
		{"provider create", `{"name":""}`, never, 0},
		{"provider update", `{"name":""}`, never, 0},
		{"provider create", `{"name":"n","uuid":"x"}`, never, 0},
		{"provider create", `{"name":"n","uuid":null}`, never, 0},
		{"provider create", `{"name":"` + strings.Repeat("é", 200) + `"}`, always, newest},
		{"provider create", `{"name":"` + strings.Repeat("é", 201) + `"}`, never, 0},
		{"provider create", `{"name":"n","color":"blue"}`, never, 0},
		{"provider update", `{"name":"n"}`, always, newest},
		{"provider update", `{"name":"n","uuid":` + a + `}`, never, 0},
		{"provider update", `{"name":"n","parent_provider_uuid":null}`, 14, newest},
		{"inventories", `{"resource_provider_generation":1,"inventories":{}}`, always, newest},
		{"inventories", `{"resource_provider_generation":1,"inventories":[]}`, never, 0},
		{"one inventory", `{"resource_provider_generation":1,"total":1,"allocation_ratio":3.5e38}`, never, 0},
		{"one inventory", `{"total":1}`, never, 0},
		{"one inventory", `{"resource_provider_generation":1,"total":1,"min_unit":0}`, never, 0},
		{"one inventory", `{"resource_provider_generation":1,"total":1,"reserved":-1}`, never, 0},
		{"new inventory", `{"resource_class":"VCPU","total":1}`, always, newest},
		{"new inventory", `{"resource_class":"VCPU","total":1,"resource_provider_generation":3}`, always, newest},
		{"new inventory", `{"resource_class":"vcpu","total":1}`, never, 0},
		{"new inventory", `{"total":1}`, never, 0},
		{"aggregates", `[` + a + `]`, always, 18},
		{"aggregates", `[` + a + `,` + a + `]`, never, 0},
		{"aggregates", `{"aggregates":[` + a + `],"resource_provider_generation":0}`, 19, newest},
		{"aggregates", `{"aggregates":[]}`, never, 0},
		{"traits", `{"traits":[],"resource_provider_generation":0}`, always, newest},
		{"traits", `{"traits":[""],"resource_provider_generation":0}`, never, 0},
		{"traits", `{"traits":[]}`, never, 0},
		{"traits", `{"resource_provider_generation":0}`, never, 0},
		{"class", `{"name":"CUSTOM_A"}`, always, newest},
		{"class", `{"name":"VCPU"}`, never, 0},
		{"class", `{}`, never, 0},
		{"put allocations", `{` + list + `}`, always, 7},
		{"put allocations", `{` + list + `,` + owner + `}`, 8, 11},
		{"put allocations", `{` + some + `,` + owner + `}`, 12, 27},
		{"put allocations", `{` + some + `,` + owner + `,"consumer_generation":null}`, 28, 37},
		{"put allocations", `{` + some + `,` + owner + `,"consumer_generation":2}`, 28, 37},
		{"put allocations", `{` + some + `,` + owner + `,"consumer_generation":null}`, 28, 37},
		// The specification's minimum is 1.
		{"put allocations", `{` + some + `,` + owner + `,"consumer_generation":0}`, 28, 37},
		{"put allocations", `{` + some + `,` + owner + `,"consumer_generation":-1}`, 28, 37},
		{"put allocations", `{` + some + `,` + owner + `,"consumer_generation":"2"}`, never, 0},
		{"put allocations", `{` + some + `,"project_id":"","user_id":"u"}`, never, 0},
		{"put allocations", `{` + some + `,"project_id":"p","user_id":"` + strings.Repeat("u", 256) + `"}`, never, 0},
		{"put allocations", `{` + some + `,"project_id":"` + strings.Repeat("p", 255) + `","user_id":"u"}`, 12, 27},
		{"put allocations", `{` + some + `,` + owner + `,"consumer_generation":2,"mappings":{"1":[` + a + `]}}`, 34,
			37},
		{"put allocations", `{` + some + `,` + owner + `,"consumer_generation":2,"mappings":{"":[` + a + `]}}`, 34, 37},
		{"put allocations", `{` + some + `,` + owner + `,"consumer_generation":2,"mappings":{"1":[]}}`, never, 0},
		{"put allocations", `{` + some + `,` + owner + `,"consumer_generation":2,"mappings":{}}`, never, 0},
		{"put allocations", `{` + some + `,` + owner + `,"consumer_generation":2,"consumer_type":"INSTANCE"}`, 38,
			newest},
		{"put allocations", `{` + some + `,` + owner + `,"consumer_generation":2,"consumer_type":"instance"}`, never,
			0},
		{"put allocations", `{"allocations":[]}`, never, 0},
		{"put allocations", `{"allocations":{},` + owner + `}`, never, 0},
		{"put allocations", `{"allocations":{},` + owner + `,"consumer_generation":1}`, 28, 37},
		{"put allocations", `{"allocations":{` + a + `:{"resources":{}}},` + owner + `}`, never, 0},
		{"put allocations", `{"allocations":{` + a + `:{"resources":{"VCPU":0}}},` + owner + `}`, never, 0},
		{"put allocations", `{"allocations":{` +
			a + `:{"generation":3,"resources":{"VCPU":1}}},` + owner + `}`, 12, 27},
		{"put allocations", `{"allocations":{"short":{"resources":{"VCPU":1}}},` + owner + `}`, never, 0},
		{"allocations", `{` + a + `:{"allocations":{},` + owner + `}}`, 12, 27},
		{"allocations", `{}`, never, 0},
		{"allocations", `{"x":{"allocations":{},` + owner + `}}`, never, 0},
		{"reshape", `{"inventories":{` + a + `:{"resource_provider_generation":1,"inventories":{}}},"allocations":{}}`,
			always, newest},
		{"reshape", `{"inventories":{},"allocations":{}}`, never, 0},
		{"reshape", `{"inventories":{` + a + `:{"resource_provider_generation":1,"inventories":{}}}}`, never, 0},
		// The specification writes the two as lists; they are objects.
		{"reshape", `{"inventories":[{` +
			a + `:{"resource_provider_generation":1,"inventories":{}}}],"allocations":{}}`, never, 0},
		{"reshape", `{"inventories":{` + a + `:{"resource_provider_generation":1,"inventories":{}}},"allocations":[]}`,
			never, 0},
	} {
		for v := wire.MinVersion; v <= wire.MaxVersion; v++ {
			_, err := decoders[c.decoder](c.body, v)
			good := int(v) >= c.from && int(v) <= c.to && c.from != never
			if (err == nil) != good {
				t.Errorf("%s at %s: %s\n got %v, want it good: %v", c.decoder, v, c.body, err, good)
				break
			}
			var body *jsonkit.Error
			if err != nil && !errors.As(err, &body) {
				t.Errorf("%s at %s: the error is no *jsonkit.Error: %v", c.decoder, v, err)
			}
		}
	}
}

// TestRequestsReadBackAsTheyWereEncoded holds the client's side of requests against the server's.
func TestRequestsReadBackAsTheyWereEncoded(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	generation := int64(7)
	inventories := wire.Inventories{Generation: 3, Inventories: map[string]wire.Inventory{
		"VCPU":      wire.DefaultInventory(8),
		"MEMORY_MB": {Total: 1024, Reserved: 512, MinUnit: 2, MaxUnit: 64, StepSize: 2, AllocationRatio: 1.5},
	}}
	allocations := wire.ConsumerAllocations{
		Allocations: wire.ProviderResources{uuidA: {"VCPU": 2, "MEMORY_MB": 64}},
		ProjectID:   "project", UserID: "user", ConsumerGeneration: &generation, ConsumerType: "INSTANCE",
		Mappings: map[string][]string{"_NET1": {uuidA, uuidB}},
	}
	for _, c := range []struct {
		decoder string
		request any
	}{
		{"provider create", wire.ProviderCreate{Name: "näme \"x\"\n", UUID: uuidA, Parent: uuidB}},
		{"provider update", wire.ProviderUpdate{Name: "n"}},
		{"provider update", wire.ProviderUpdate{Name: "n", Parent: wire.ParentChange{Set: true}}},
		{"provider update", wire.ProviderUpdate{Name: "n", Parent: wire.ParentChange{Set: true, UUID: uuidB}}},
		{"inventories", inventories},
		{"one inventory", wire.OneInventory{Inventory: wire.DefaultInventory(3), Generation: 4}},
		{"new inventory", wire.InventoryCreate{Inventory: wire.DefaultInventory(3), ResourceClass: "CUSTOM_A"}},
		{"aggregates", wire.AggregateList{Aggregates: []string{uuidA, uuidB}, Generation: &generation}},
		{"traits", wire.ProviderTraits{Traits: []string{"CUSTOM_A"}, Generation: 5}},
		{"put allocations", allocations},
		{"allocations", map[string]wire.ConsumerAllocations{uuidA: allocations,
			uuidB: {Allocations: wire.ProviderResources{}, ProjectID: "p", UserID: "u", ConsumerType: "MIGRATION"}}},
		{"reshape", wire.Reshape{Inventories: map[string]wire.Inventories{uuidA: inventories},
			Allocations: map[string]wire.ConsumerAllocations{uuidB: allocations}}},
	} {
		body := testproc.Try(json.Marshal(c.request)).Or(t)
		got, err := decoders[c.decoder](string(body), wire.MaxVersion)
		if err != nil {
			t.Errorf("%s: %s: %v", c.decoder, body, err)
			continue
		}
		if diff := cmp.Diff(c.request, got); diff != "" {
			t.Errorf("%s: %s reads back as something else (-sent +read):\n%s", c.decoder, body, diff)
		}
	}
}

// TestParentThatIsNotSet is left out, whatever it is.
func TestParentThatIsNotSet(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	body, err := json.Marshal(wire.ProviderUpdate{Name: "n", Parent: wire.ParentChange{UUID: uuidB}})
	if err != nil || string(body) != `{"name":"n"}` {
		t.Errorf("%s, %v", body, err)
	}
}

func TestLastOfEqualKeysCounts(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	got, err := wire.DecodeInventories(
		[]byte(`{"inventories":{"VCPU":{"total":1}},"inventories":{"DISK_GB":{"total":1,"total":2}},` +
			`"resource_provider_generation":1}`))
	testproc.Check(t, err)
	want := wire.Inventories{Generation: 1, Inventories: map[string]wire.Inventory{"DISK_GB": wire.DefaultInventory(2)}}
	testproc.Same(t, cmp.Diff(want, got))
}

func FuzzDecoders(f *testing.F) {
	f.Add(`{"allocations":{"`+uuidA+
		`":{"resources":{"VCPU":1}}},"project_id":"p","user_id":"u","consumer_generation":null,"consumer_type":"A"}`,
		uint8(wire.MaxVersion))
	f.Add(`{"allocations":[{"resource_provider":{"uuid":"`+uuidA+`"},"resources":{"VCPU":1}}]}`, uint8(0))
	f.Add(`{"inventories":{"`+uuidA+
		`":{"resource_provider_generation":1,"inventories":{"VCPU":{"total":1.0}}}},"allocations":{}}`, uint8(30))
	f.Add(`{"aggregates":["`+uuidA+`"],"resource_provider_generation":1e2}`, uint8(19))
	f.Add(`{"name":"\ud83d\ude00","parent_provider_uuid":null}`, uint8(14))
	f.Fuzz(func(t *testing.T, body string, minor uint8) {
		v := wire.Version(minor % uint8(wire.MaxVersion+1))
		for name, decode := range decoders {
			_, err := decode(body, v)
			var wrong *jsonkit.Error
			if err != nil && !errors.As(err, &wrong) {
				t.Errorf("%s at %s: %q gives an error of another kind: %v", name, v, body, err)
			}
			if err == nil && !json.Valid([]byte(body)) {
				t.Errorf("%s at %s takes %q, which is no JSON", name, v, body)
			}
		}
	})
}

func TestBodyErrorsNameThePlaceAndTheRule(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for body, want := range map[string]string{
		`{"resource_provider_generation":1,"inventories":{"VCPU":{"total":0}}}`: "JSON does not validate: " +
			"inventories.VCPU.total must be at least 1",
		`{"resource_provider_generation":1,"inventories":{"VCPU":{"total":2147483648}}}`: "JSON does not validate: " +
			"inventories.VCPU.total must be at most 2147483647",
		`{"resource_provider_generation":1,"inventories":{"VCPU":{"total":1,"x":1}}}`: "JSON does not validate: " +
			"inventories.VCPU.x is not an allowed key",
		`{"resource_provider_generation":true,"inventories":{}}`: "JSON does not validate: " +
			"resource_provider_generation must be an integer",
		`{"inventories":{}}`: `JSON does not validate: the body must have the key "resource_provider_generation"`,
		`[]`:                 "JSON does not validate: the body must be an object",
		`{"inventories":{`:   "Malformed JSON: a key in double quotes is expected (at byte 16)",
		``:                   "Malformed JSON: it ends where a value is expected (at byte 0)",
	} {
		_, err := wire.DecodeInventories([]byte(body))
		if err == nil || err.Error() != want {
			t.Errorf("%s\n got %v\nwant %s", body, err, want)
		}
	}
	_, err := wire.DecodeAggregates([]byte(`["4e8e5957-649f-477b-9e5b-f1f75b21c03c", 7]`), 1)
	if want := "JSON does not validate: [1] must be a string"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
