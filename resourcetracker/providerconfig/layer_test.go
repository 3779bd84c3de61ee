// SPDX-License-Identifier: Apache-2.0

package providerconfig

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/resourcetracker/ownership"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const (
	rootID  = "11111111-1111-4111-8111-111111111111"
	childID = "22222222-2222-4222-8222-222222222222"
	shareID = "33333333-3333-4333-8333-333333333333"
)

// host is a compute node with a child of neutron's, and a sharing provider beside it.
func host(t *testing.T) *providertree.Tree {
	t.Helper()
	tree := &providertree.Tree{}
	for _, err := range []error{
		tree.AddRoot(rootID, "cn1"),
		tree.AddChild(rootID, childID, "cn1:eth0"),
		tree.AddRoot(shareID, "nfs"),
	} {
		testproc.Check(t, err)
	}
	return tree
}

// TestLayer: which entry is for which provider.
func TestLayer(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const unknown = "neither this node nor a sharing provider has a resource provider with the "
	for name, tc := range map[string]struct {
		entries []string // identification, trait
		want    map[string]string
		reasons map[string]string // of unmatched entries, by key
	}{
		"nothing": {nil, nil, nil},
		"the node": {[]string{"{uuid: $COMPUTE_NODE}", "CUSTOM_A"},
			map[string]string{rootID: "CUSTOM_A"}, nil},
		"the node by uuid goes before": {[]string{"{uuid: $COMPUTE_NODE}", "CUSTOM_A", "{uuid: " +
			rootID + "}", "CUSTOM_B"}, map[string]string{rootID: "CUSTOM_B"}, nil},
		"the node by name goes before": {[]string{"{name: cn1}", "CUSTOM_B", "{uuid: $COMPUTE_NODE}",
			"CUSTOM_A"}, map[string]string{rootID: "CUSTOM_B"}, nil},
		"a child by name, and the node": {[]string{"{name: 'cn1:eth0'}", "CUSTOM_B", "{uuid: $COMPUTE_NODE}",
			"CUSTOM_A"}, map[string]string{childID: "CUSTOM_B", rootID: "CUSTOM_A"}, nil},
		"a sharing provider is no compute node": {[]string{"{uuid: " + shareID + "}", "CUSTOM_B"},
			map[string]string{shareID: "CUSTOM_B"}, nil},
		"unknown": {
			[]string{"{name: cn2}", "CUSTOM_A", "{uuid: 99999999-9999-4999-8999-999999999999}", "CUSTOM_A",
				"{name: cn1}", "CUSTOM_B"}, map[string]string{rootID: "CUSTOM_B"},
			map[string]string{
				"name cn2": unknown + `name "cn2"; correct the entry, or remove it`,
				"uuid 99999999-9999-4999-8999-999999999999": unknown +
					"uuid 99999999-9999-4999-8999-999999999999; correct the entry, or remove it",
			},
		},
		"the node twice": {
			[]string{"{name: cn1}", "CUSTOM_A", "{uuid: $COMPUTE_NODE}", "CUSTOM_C", "{uuid: " +
				rootID + "}", "CUSTOM_B"}, nil,
			map[string]string{
				"name cn1": `the provider with the name "cn1" has another entry at f.yaml:7 (uuid ` + rootID +
					`), so neither is applied; merge them into one entry`,
				"uuid " + rootID: "the provider with the uuid " + rootID +
					` has another entry at f.yaml:3 (name "cn1"), so neither is applied; merge them into one entry`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			file := meta + "providers:\n"
			for i := 0; i < len(tc.entries); i += 2 {
				file += "  - identification: " +
					tc.entries[i] + "\n    traits: {additional: [" + tc.entries[i+1] + "]}\n"
			}
			if len(tc.entries) == 0 {
				file = meta
			}
			dir := write(t, map[string]string{"f.yaml": file})
			c, _, err := Load(dir)
			testproc.Check(t, err)
			tree := host(t)
			layer, unmatched := c.Layer(tree, rootID)
			want := ownership.Layer{Owner: ownership.Operator, Providers: map[string]ownership.LayerProvider{}}
			for uuid, trait := range tc.want {
				want.Providers[uuid] = ownership.LayerProvider{Inventories: providertree.Inventories{},
					Traits: []string{trait}}
			}
			testproc.Samef(t, cmp.Diff(want, layer), "layer")
			reasons := map[string]string{}
			for i, u := range unmatched {
				reasons[u.Key] = strings.ReplaceAll(u.Reason, dir+"/", "")
				if u.Where == "" || u.Duplicate != strings.Contains(u.Reason, "another entry") {
					t.Errorf("unmatched: %+v", u)
				}
				if i > 0 && unmatched[i-1].Where >= u.Where {
					t.Errorf("not in the order of the file: %v", unmatched)
				}
			}
			if diff := cmp.Diff(tc.reasons, reasons); diff != "" && len(tc.reasons)+len(reasons) > 0 {
				t.Errorf("unmatched (-want +got):\n%s", diff)
			}
			if !tree.Equal(host(t)) {
				t.Error("the tree was changed")
			}
		})
	}
}

// TestLayerIsACopy: the layer is a copy, and a nil Config lays nothing.
func TestLayerIsACopy(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c, _, err := Load("testdata/nova")
	testproc.Check(t, err)
	first, _ := c.Layer(host(t), rootID)
	delete(first.Providers[rootID].Inventories, "CUSTOM_LICENSE")
	first.Providers[rootID].Traits[0] = "CUSTOM_OTHER"
	second, _ := c.Layer(host(t), rootID)
	if len(second.Providers[rootID].Inventories) != 2 || second.Providers[rootID].Traits[0] != "CUSTOM_RACK_7" {
		t.Errorf("changed by its reader: %+v", second)
	}
	var none *Config
	if layer, unmatched := none.Layer(host(t), rootID); len(layer.Providers) != 0 ||
		layer.Owner != ownership.Operator || unmatched != nil {
		t.Errorf("of nothing: %+v, %v", layer, unmatched)
	}
}

// TestExemption: an entry with an empty inventory adds nothing and still goes before $COMPUTE_NODE,
// as with Nova: that is how one node is exempted.
func TestExemption(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := write(t, map[string]string{
		"a.yaml": entry("{uuid: $COMPUTE_NODE}", "CUSTOM_A"),
		"b.yaml": meta + "providers:\n  - identification: {name: cn1}\n    inventories: {additional: [{}]}\n",
	})
	c, warnings, err := Load(dir)
	if err != nil || len(warnings) != 0 {
		t.Fatal(err, warnings)
	}
	if layer, unmatched := c.Layer(host(t), rootID); len(layer.Providers) != 0 || len(unmatched) != 0 {
		t.Errorf("Layer of an exempted node: got %+v, unmatched %v, want nothing", layer, unmatched)
	}
}
