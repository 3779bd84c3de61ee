// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/drivers/fake/internal/faults"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const (
	rootUUID = "11111111-2222-3333-4444-555555555555"
	foreign  = "99999999-2222-3333-4444-555555555555"
)

func configured(t *testing.T, raw string) *Driver {
	t.Helper()
	d := New()
	configure(t, d, raw)
	return d
}

func configure(t *testing.T, d *Driver, raw string) {
	t.Helper()
	testproc.Check(t, d.Configure(context.Background(), json.RawMessage(raw), plugins.HostInfo{Name: "this-host"}))
}

func newTree(t *testing.T, name string) *providertree.Tree {
	t.Helper()
	tree := &providertree.Tree{}
	testproc.Check(t, tree.AddRoot(rootUUID, name))
	return tree
}

func update(t *testing.T, d *Driver, tree *providertree.Tree, node string) {
	t.Helper()
	testproc.Try(d.UpdateProviderTree(context.Background(), tree, node, nil)).Or(t)
}

// outline is a tree as text: one line a provider, indented, with classes and traits.
func outline(tree *providertree.Tree) []string {
	var out []string
	for p := range tree.All() {
		depth := 0
		for up := p.ParentUUID; up != ""; depth++ {
			parent, _ := tree.Provider(up)
			up = parent.ParentUUID
		}
		var classes []string
		for class := range p.Inventories {
			classes = append(classes, class)
		}
		slices.Sort(classes)
		out = append(out, strings.Repeat("  ", depth)+
			p.Name+" "+strings.Join(classes, ",")+" "+strings.Join(p.Traits, ","))
	}
	return out
}

func TestWithoutConfigurationThereIsOneNodeNamedLikeTheHost(t *testing.T) {
	d := configured(t, `{}`)
	nodes, err := d.AvailableNodes(context.Background())
	if diff := cmp.Diff([]plugins.Node{{Name: "this-host"}}, nodes); diff != "" || err != nil {
		t.Error(diff, err)
	}
	tree := newTree(t, "this-host")
	update(t, d, tree, "this-host")
	testproc.Same(t, cmp.Diff([]string{"this-host DISK_GB,MEMORY_MB,VCPU "}, outline(tree)))
}

const nested = `{"nodes":[{"name":"cn1","inventories":{"VCPU":{"total":8}},"traits":["CUSTOM_A"],"aggregates":["` + foreign + `"],"children":[
	{"name":"numa_0","traits":["HW_NUMA_ROOT"],"children":[{"name":"gpu","inventories":{"VGPU":{"total":4}}}]},
	{"name":"numa_1","traits":["HW_NUMA_ROOT"]}]}]}`

func TestNestedChildren(t *testing.T) {
	d := configured(t, nested)
	tree := newTree(t, "cn1")
	update(t, d, tree, "cn1")
	want := []string{"cn1 VCPU CUSTOM_A", "  cn1_numa_0  HW_NUMA_ROOT", "    cn1_numa_0_gpu VGPU ",
		"  cn1_numa_1  HW_NUMA_ROOT"}
	testproc.Same(t, cmp.Diff(want, outline(tree)))
	if !tree.InAggregates(rootUUID, foreign) {
		t.Error("aggregate")
	}
	again := tree.Clone()
	update(t, d, again, "cn1")
	if changes := providertree.Diff(tree, again); !changes.Empty() {
		t.Errorf("called with its own result it changes %+v", changes)
	}
	other := newTree(t, "cn1")
	update(t, configured(t, nested), other, "cn1")
	if !other.Equal(tree) {
		t.Error("after a restart the children have other uuids")
	}
}

func TestWhatOthersWroteStays(t *testing.T) {
	tree := newTree(t, "cn1")
	must := func(_ bool, err error) {
		t.Helper()
		testproc.Check(t, err)
	}
	must(tree.SetInventory(rootUUID, "CUSTOM_THEIRS", providertree.Inventory{Total: 1}))
	must(tree.AddTraits(rootUUID, "CUSTOM_B"))
	must(true, tree.AddChild(rootUUID, foreign, "cn1_theirs"))

	d := configured(t, nested)
	update(t, d, tree, "cn1")
	configure(t, d, `{"nodes":[{"name":"cn1","inventories":{"MEMORY_MB":{"total":1}}}]}`)
	update(t, d, tree, "cn1")
	if diff := cmp.Diff([]string{"cn1 CUSTOM_THEIRS,MEMORY_MB CUSTOM_B", "  cn1_theirs  "}, outline(tree)); diff != "" {
		t.Errorf("what is configured no more goes, what others wrote stays: %s", diff)
	}
}

func TestChildWithSomethingForeignBelowItStays(t *testing.T) {
	tree := newTree(t, "cn1")
	d := configured(t, nested)
	update(t, d, tree, "cn1")
	numa, _ := tree.ProviderByName("cn1_numa_1")
	testproc.Check(t, tree.AddChild(numa.UUID, foreign, "theirs"))
	configure(t, d, `{"nodes":[{"name":"cn1"}]}`)
	update(t, d, tree, "cn1")
	testproc.Same(t, cmp.Diff([]string{"cn1  ", "  cn1_numa_1  HW_NUMA_ROOT", "    theirs  "}, outline(tree)))
}

func TestMistakesAreNamedByTheirKey(t *testing.T) {
	for raw, key := range map[string]string{
		`{"nodez":[]}`:                          "nodez",
		`{"nodes":[{"name":""}]}`:               "nodes[0].name",
		`{"nodes":[{"name":"a"},{"name":"a"}]}`: "nodes[1].name",
		`{"nodes":[{"name":"a_b"},{"name":"a","children":[{"name":"b"}]}]}`: "nodes[1].children[0].name",
		`{"nodes":[{"name":"a","uuid":"x"}]}`:                               "nodes[0].uuid",
		`{"nodes":[{"name":"a","uuid":"` + foreign + `"},` +
			`{"name":"b","uuid":"` + foreign + `"}]}`: "nodes[1].uuid",
		`{"nodes":[{"name":"a","children":[{"name":"b","uuid":"` + foreign +
			`"}]}]}`: "nodes[0].children[0].uuid",
		`{"nodes":[{"name":"a","inventories":{"VCPU":{"total":0}}}]}`: "nodes[0].inventories.VCPU",
		`{"nodes":[{"name":"a","inventories":{"vcpu":{"total":1}}}]}`: "nodes[0].inventories.vcpu",
		`{"nodes":[{"name":"a","traits":["OK","not ok"]}]}`:           "nodes[0].traits[1]",
		`{"nodes":[{"name":"a","aggregates":["x"]}]}`:                 "nodes[0].aggregates[0]",
	} {
		d := configured(t, `{"nodes":[{"name":"kept"}]}`)
		var config *plugins.ConfigError
		if err := d.Configure(context.Background(), json.RawMessage(raw), plugins.HostInfo{}); !errors.As(err,
			&config) || config.Key != key {
			t.Errorf("%s: want key %s, got %v", raw, key, err)
		}
		if nodes, _ := d.AvailableNodes(context.Background()); len(nodes) != 1 || nodes[0].Name != "kept" {
			t.Errorf("%s: the former configuration is gone: %v", raw, nodes)
		}
	}
}

func TestNotReadyAndHealth(t *testing.T) {
	d := configured(t, `{"not_ready":"asleep","health":"tired"}`)
	testproc.Try(d.AvailableNodes(context.Background())).ErrorIs(t, plugins.ErrNotReady, "nodes: %v")
	if _, err := d.UpdateProviderTree(context.Background(),
		newTree(t, "x"), "x", nil); !errors.Is(err, plugins.ErrNotReady) {
		t.Errorf("tree: %v", err)
	}
	if err := d.Health(context.Background()); err == nil || err.Error() != "tired" {
		t.Errorf("health: %v", err)
	}
}

func TestUnknownNode(t *testing.T) {
	d := configured(t, nested)
	for _, node := range []string{"cn2", "nowhere"} {
		if _, err := d.UpdateProviderTree(context.Background(), newTree(t, "cn2"), node, nil); err == nil {
			t.Errorf("%s: no error", node)
		}
	}
}

func TestWatchTellsOfANewConfiguration(t *testing.T) {
	d := configured(t, `{}`)
	ctx, cancel := context.WithCancel(context.Background())
	told, watching := make(chan string), make(chan error, 1)
	go func() {
		watching <- d.Watch(ctx, func(node string) {
			select {
			case told <- node:
			case <-ctx.Done():
			}
		})
	}()
	for told != nil {
		configure(t, d, `{}`) // again until it is received: Watch may not have begun
		select {
		case node := <-told:
			testproc.Equal(t, node, "", "told %q")
			told = nil
		default:
		}
	}
	cancel()
	testproc.NoError(t, <-watching)
}

// TestSchemaNamesEveryKey compares the schema with the structs.
func TestSchemaNamesEveryKey(t *testing.T) {
	type object struct {
		Properties map[string]any `json:"properties"`
	}
	var s struct {
		object
		Defs map[string]object `json:"$defs"`
	}
	var lists struct {
		Properties struct {
			GuestList struct {
				Items object `json:"items"`
			} `json:"guest_list"`
			Instances object `json:"instances"`
			Faults    object `json:"faults"`
		} `json:"properties"`
	}
	testproc.Check(t, errors.Join(json.Unmarshal(New().ConfigSchema(), &s),
		json.Unmarshal(New().ConfigSchema(), &lists)))
	for name, c := range map[string]struct {
		of         any
		properties map[string]any
		elsewhere  []string
	}{
		"config":    {config{}, s.Properties, nil},
		"guest":     {guest{}, lists.Properties.GuestList.Items.Properties, nil},
		"instances": {management{}, lists.Properties.Instances.Properties, nil},
		"faults":    {faults.Config{}, lists.Properties.Faults.Properties, nil},
		"provider":  {provider{}, s.Defs["provider"].Properties, []string{"uuid"}}, // of nodes only
		"inventory": {inventory{}, s.Defs["inventory"].Properties, nil},
	} {
		var tags, keys []string
		for f := range reflect.TypeOf(c.of).NumField() {
			if field := reflect.TypeOf(c.of).Field(f); field.IsExported() {
				tags = append(tags, field.Tag.Get("json"))
				if field.Tag.Get("toml") != field.Tag.Get("json") {
					t.Errorf("%s.%s has another name in a scenario", name, field.Name)
				}
			}
		}
		for key := range c.properties {
			keys = append(keys, key)
		}
		keys = append(keys, c.elsewhere...)
		slices.Sort(tags)
		slices.Sort(keys)
		testproc.Samef(t, cmp.Diff(tags, keys), "%s (-struct +schema)", name)
	}
}

// TestChildrenAreTakenOverByName: a child that another program made under another uuid is not made
// a second time.
func TestChildrenAreTakenOverByName(t *testing.T) {
	const root, child = "11111111-0000-4000-8000-000000000001", "22222222-0000-4000-8000-000000000002"
	d := New()
	cfg := `{"nodes": [{"name": "cn1", "uuid": "` + root +
		`", "children": [{"name": "pci_0000_84_00_0", "inventories": {"VGPU": {"total": 4}}}]}]}`
	testproc.Check(t, d.Configure(t.Context(), json.RawMessage(cfg), plugins.HostInfo{Name: "cn1"}))
	tree := &providertree.Tree{}
	testproc.Check(t, tree.Populate([]providertree.Provider{
		{UUID: root, Name: "cn1", Generation: 3},
		{UUID: child, Name: "cn1_pci_0000_84_00_0", ParentUUID: root, Generation: 1,
			Inventories: providertree.Inventories{"VGPU": {Total: 4}}},
	}))
	before := tree.Clone()
	if _, err := d.UpdateProviderTree(t.Context(), tree, "cn1", nil); err != nil || !tree.Equal(before) {
		t.Errorf("%v: %+v", err, providertree.Diff(before, tree))
	}
}
