// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

const (
	root     = "11111111-2222-3333-4444-555555555555"
	child    = "22222222-2222-3333-4444-555555555555"
	consumer = "99999999-2222-3333-4444-555555555555"
)

func configured(t *testing.T, config string) *Driver {
	t.Helper()
	d := New()
	if err := d.Configure(context.Background(), json.RawMessage(config), plugins.HostInfo{}); err != nil {
		t.Fatal(err)
	}
	return d
}

func node(t *testing.T) *providertree.Tree {
	t.Helper()
	tree := &providertree.Tree{}
	if err := errors.Join(tree.AddRoot(root, "cn1"), tree.AddChild(root, child, "cn1_child")); err != nil {
		t.Fatal(err)
	}
	return tree
}

func held() providertree.Allocations {
	return providertree.Allocations{consumer: {Resources: providertree.ProviderResources{root: {"VCPU": 2}}}}
}

func TestWithoutOrdersItBehaves(t *testing.T) {
	d, tree := configured(t, `{}`), node(t)
	for range 2 {
		given := held()
		after, err := d.UpdateProviderTree(context.Background(), tree, "cn1", given)
		if diff := cmp.Diff(given, after); err != nil || diff != "" {
			t.Error(err, diff)
		}
	}
	if inv, _ := tree.Inventory(root, "VCPU"); inv.Total != 8 || !tree.Exists(child) {
		t.Errorf("tree: %v", tree)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := errors.Join(d.Health(ctx), d.Shutdown(ctx), d.Watch(ctx, func(string) { t.Error("told of a change") })); err != nil {
		t.Error(err)
	}
}

func TestTreeDeeds(t *testing.T) {
	update := func(deeds string, allocations providertree.Allocations) (*providertree.Tree, providertree.Allocations, *Driver, error) {
		d, tree := configured(t, `{"update":"`+deeds+`"}`), node(t)
		after, err := d.UpdateProviderTree(context.Background(), tree, "cn1", allocations)
		return tree, after, d, err
	}
	if tree, _, _, err := update("no-root", nil); err != nil || tree.Len() != 0 {
		t.Errorf("no-root: %v %v", err, tree)
	}
	if tree, _, _, err := update("foreign generation", nil); err != nil || tree.Exists(child) || !tree.Exists(root) {
		t.Errorf("foreign: %v %v", err, tree)
	}
	if _, after, _, err := update("lose", held()); err != nil || len(after) != 0 {
		t.Errorf("lose: %v %v", err, after)
	}
	if _, after, _, err := update("invent", held()); err != nil || after[consumer].Resources[root]["VCPU"] != 3 {
		t.Errorf("invent: %v %v", err, after)
	}
	if _, after, _, err := update("uninvited", nil); err != nil || after == nil {
		t.Errorf("uninvited: %v %v", err, after)
	}
	if _, _, d, err := update("rename", held()); err != nil || len(d.ClassRenames()) != 1 {
		t.Errorf("rename: %v %v", err, d.ClassRenames())
	}
	if _, _, _, err := update("reshape", nil); !errors.Is(err, plugins.ErrReshapeNeeded) {
		t.Errorf("reshape: %v", err)
	}
	var failed *plugins.ReshapeFailed
	if _, _, _, err := update("reshape", held()); !errors.As(err, &failed) || len(failed.Offenders) != 1 {
		t.Errorf("reshape: %v", err)
	}
	if _, _, _, err := update("again", held()); !errors.Is(err, plugins.ErrReshapeNeeded) {
		t.Errorf("again: %v", err)
	}
	d, tree, totals := configured(t, `{"update":"flicker"}`), node(t), map[int64]bool{}
	for range 2 {
		if _, err := d.UpdateProviderTree(context.Background(), tree, "cn1", nil); err != nil {
			t.Fatal(err)
		}
		inv, _ := tree.Inventory(root, "VCPU")
		totals[inv.Total] = true
	}
	if len(totals) != 2 {
		t.Errorf("flicker: %v", totals)
	}
}

func TestDeedsThatReturn(t *testing.T) {
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	for deeds, want := range map[string]string{
		"late": "", "late error panic": "something is wrong", "not-ready": "it sleeps", "refuse": "this is refused",
	} {
		d := configured(t, `{"health":"`+deeds+`","file":"/nonexistent"}`)
		if err := d.Health(gone); (err == nil) != (want == "") || (err != nil && !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", deeds, err)
		}
	}
	if err := configured(t, `{"health":"wait","file":"/nonexistent"}`).Health(gone); !errors.Is(err, context.Canceled) {
		t.Errorf("wait: %v", err)
	}
}

func TestOrdersThatCannotBe(t *testing.T) {
	for config, key := range map[string]string{
		`{"update":"hang dance"}`: "update", `{"health":"no-root"}`: "health", `{"updat":""}`: "updat", `{"nodes":"wait"}`: "file",
	} {
		d := configured(t, `{"health":"error"}`)
		var wrong *plugins.ConfigError
		if err := d.Configure(context.Background(), json.RawMessage(config), plugins.HostInfo{}); !errors.As(err, &wrong) || wrong.Key != key {
			t.Errorf("%s: %v", config, err)
		}
		if d.Health(context.Background()) == nil {
			t.Errorf("%s: the former configuration is forgotten", config)
		}
	}
	for _, arg := range []string{"dance", "--start=dance", "--start=noise,sleep=long"} {
		if Start([]string{arg}) == nil {
			t.Errorf("%s: no error", arg)
		}
	}
	if err := Start([]string{"--info", "--start=sleep=0s"}); err != nil {
		t.Error(err)
	}
}

// TestSchemaNamesEveryDeed: it is where somebody finds out what there is.
func TestSchemaNamesEveryDeed(t *testing.T) {
	var schema struct {
		Properties map[string]struct{ Description string }
	}
	if err := json.Unmarshal(New().ConfigSchema(), &schema); err != nil {
		t.Fatal(err)
	}
	for key := range (config{}).deedsOf() {
		for _, name := range deedsIn(key) {
			if !strings.Contains(schema.Properties[key].Description, " "+name+": ") {
				t.Errorf("%s: %s is missing", key, name)
			}
		}
	}
	seen := map[string]int{garbled: 1}
	for _, names := range []iter.Seq[string]{maps.Keys(deeds), maps.Keys(treeDeeds), maps.Keys(listDeeds), maps.Keys(answerDeeds)} {
		for name := range names {
			if seen[name]++; seen[name] > 1 {
				t.Errorf("%s is two deeds", name)
			}
		}
	}
}

func TestInstanceDeeds(t *testing.T) {
	ctx, spec := context.Background(), plugins.InstanceSpec{UUID: consumer, Name: "web"}
	web := plugins.Instance{UUID: consumer, Name: "web", Power: plugins.PowerRunning, HypervisorName: "fake-99999999"}
	spawned := func(config string) (*Driver, plugins.Instance, error) {
		d := configured(t, config)
		made, err := d.Spawn(ctx, "cn1", spec, node(t))
		return d, made, err
	}
	d, made, err := spawned(`{}`)
	if diff := cmp.Diff(web, made); err != nil || diff != "" {
		t.Error(err, diff)
	}
	if list, err := d.Instances(ctx, "cn1"); err != nil || len(list) != 1 {
		t.Error(list, err)
	}
	for config, want := range map[string]string{`{"spawn":"other"}`: inventedUUID, `{"spawn":"blank"}`: ""} {
		if _, made, err := spawned(config); err != nil || made.UUID != want {
			t.Errorf("%s: %v %v", config, made, err)
		}
	}
	for deed, want := range map[string]int{"twice": 2, "nameless": 2, "strange-power": 2, "essay": 2, "crowd": 100_001} {
		d, _, err := spawned(`{"list":"` + deed + `"}`)
		list, failed := d.Instances(ctx, "cn1")
		if err != nil || failed != nil || len(list) != want {
			t.Errorf("%s: %d instances, %v, %v", deed, len(list), err, failed)
		}
	}
	if d, _, err = spawned(`{"spawn":"error","destroy":"refuse","power":"unheard"}`); err == nil {
		t.Error("spawn: no error")
	}
	if is, err := d.SetPower(ctx, "cn1", consumer, plugins.PowerShutdown, true); err != nil || is.Power != -7 {
		t.Error(is, err)
	}
	if d.Destroy(ctx, "cn1", consumer) == nil {
		t.Error("destroy: no error")
	}
	if list, err := d.Instances(ctx, "cn1"); err != nil || len(list) != 1 || list[0].Power != plugins.PowerShutdown {
		t.Errorf("what was made in spite of all: %v, %v", list, err)
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	for deeds, want := range map[string]int{"": 0, "garbled": 4, "storm": stormLines} {
		told := 0
		if err := configured(t, `{"events":"`+deeds+`"}`).WatchInstances(gone, func(string, string) { told++ }); err != nil || told != want {
			t.Errorf("%q: told %d times, %v", deeds, told, err)
		}
	}
}
