// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const (
	root     = "11111111-2222-3333-4444-555555555555"
	child    = "22222222-2222-3333-4444-555555555555"
	consumer = "99999999-2222-3333-4444-555555555555"
)

// faulty is a driver of one node with these faults, as JSON.
func faulty(t *testing.T, faults string) *Driver {
	t.Helper()
	return configured(t, `{"nodes":[{"name":"cn1","inventories":{"VCPU":{"total":8}}}],"instances":{},"faults":`+faults+
		`}`)
}

// node is a tree of the node with a child that is not the driver's.
func node(t *testing.T) *providertree.Tree {
	t.Helper()
	tree := &providertree.Tree{}
	testproc.Check(t, errors.Join(tree.AddRoot(root, "cn1"), tree.AddChild(root, child, "cn1_child")))
	return tree
}

func given() providertree.Allocations {
	return providertree.Allocations{consumer: {Resources: providertree.ProviderResources{root: {"VCPU": 2}}}}
}

func TestWithoutFaults(t *testing.T) {
	d, tree := faulty(t, `{}`), node(t)
	for range 2 {
		allocations := given()
		after, err := d.UpdateProviderTree(context.Background(), tree, "cn1", allocations)
		if diff := cmp.Diff(allocations, after); err != nil || diff != "" {
			t.Error(err, diff)
		}
	}
	if inv, _ := tree.Inventory(root, "VCPU"); inv.Total != 8 || !tree.Exists(child) {
		t.Errorf("tree: %v", tree)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	testproc.NoError(t, errors.Join(d.Health(ctx),
		d.Shutdown(ctx), d.Watch(ctx, func(string) { t.Error("told of a change") })))
}

func TestFaultsOfTheTree(t *testing.T) {
	update := func(faults string, allocations providertree.Allocations) (*providertree.Tree,
		providertree.Allocations, *Driver, error) {
		d, tree := faulty(t, `{"update":"`+faults+`"}`), node(t)
		after, err := d.UpdateProviderTree(context.Background(), tree, "cn1", allocations)
		return tree, after, d, err
	}
	if tree, _, _, err := update("no-root", nil); err != nil || tree.Len() != 0 {
		t.Errorf("no-root: %v %v", err, tree)
	}
	if tree, _, _, err := update("foreign generation", nil); err != nil || tree.Exists(child) || !tree.Exists(root) {
		t.Errorf("foreign: %v %v", err, tree)
	}
	if _, after, _, err := update("lose", given()); err != nil || len(after) != 0 {
		t.Errorf("lose: %v %v", err, after)
	}
	if _, after, _, err := update("invent", given()); err != nil || after[consumer].Resources[root]["VCPU"] != 3 {
		t.Errorf("invent: %v %v", err, after)
	}
	if _, after, _, err := update("uninvited", nil); err != nil || after == nil {
		t.Errorf("uninvited: %v %v", err, after)
	}
	if _, _, d, err := update("rename", given()); err != nil || len(d.ClassRenames()) != 1 {
		t.Errorf("rename: %v %v", err, d.ClassRenames())
	}
	if _, _, _, err := update("reshape", nil); !errors.Is(err, plugins.ErrReshapeNeeded) {
		t.Errorf("reshape: %v", err)
	}
	var failed *plugins.ReshapeFailed
	if _, _, _, err := update("reshape", given()); !errors.As(err, &failed) || len(failed.Violations) != 1 {
		t.Errorf("reshape: %v", err)
	}
	if _, _, _, err := update("again", given()); !errors.Is(err, plugins.ErrReshapeNeeded) {
		t.Errorf("again: %v", err)
	}
	d, tree, totals := faulty(t, `{"update":"flicker"}`), node(t), map[int64]bool{}
	for range 2 {
		testproc.Try(d.UpdateProviderTree(context.Background(), tree, "cn1", nil)).Or(t)
		inv, _ := tree.Inventory(root, "VCPU")
		totals[inv.Total] = true
	}
	if len(totals) != 2 {
		t.Errorf("flicker: %v", totals)
	}
}

func TestFaultsOfAnyCall(t *testing.T) {
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	for names, want := range map[string]string{
		"late": "", "late error panic": "something is wrong", "not-ready": "it sleeps", "refuse": "this is refused",
	} {
		d := faulty(t, `{"health":"`+names+`","file":"/nonexistent"}`)
		if err := d.Health(gone); (err == nil) != (want == "") || (err != nil && !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v", names, err)
		}
	}
	testproc.ErrorIs(t, faulty(t, `{"health":"wait","file":"/nonexistent"}`).Health(gone), context.Canceled, "wait: %v")
}

func TestInvalidFaults(t *testing.T) {
	for faults, key := range map[string]string{
		`{"update":"hang dance"}`: "update", `{"health":"no-root"}`: "health", `{"nodes":"wait"}`: "file",
		`{"reshape":"sometimes"}`: "reshape",
		`{"updat":""}`:            "updat",
	} {
		d := faulty(t, `{"health":"error"}`)
		var wrong *plugins.ConfigError
		err := d.Configure(context.Background(), json.RawMessage(`{"faults":`+faults+`}`),
			plugins.HostInfo{Name: "cn1"})
		if !errors.As(err, &wrong) || wrong.Key != "faults."+key {
			t.Errorf("%s: %v", faults, err)
		}
		if d.Health(context.Background()) == nil {
			t.Errorf("%s: the former configuration is forgotten", faults)
		}
	}
	for _, arg := range []string{"dance", "--start=dance", "--start=noise,sleep=long"} {
		if Start([]string{arg}) == nil {
			t.Errorf("%s: no error", arg)
		}
	}
	testproc.NoError(t, Start([]string{"--info", "--start=sleep=0s"}))
}

func TestFaultsOfInstances(t *testing.T) {
	ctx, spec := context.Background(), plugins.InstanceSpec{UUID: consumer, Name: "web"}
	web := plugins.Instance{UUID: consumer, Name: "web", Power: plugins.PowerRunning, HypervisorName: "fake-99999999"}
	spawned := func(config string) (*Driver, plugins.Instance, error) {
		d := faulty(t, config)
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
	for config, want := range map[string]string{
		`{"spawn":"other"}`: "00000000-dead-4bad-8bad-00000000beef", `{"spawn":"blank"}`: "",
	} {
		if _, made, err := spawned(config); err != nil || made.UUID != want {
			t.Errorf("%s: %v %v", config, made, err)
		}
	}
	for name, want := range map[string]int{"twice": 2,
		"nameless": 2, "strange-power": 2, "essay": 2, "crowd": 100_001} {
		d, _, err := spawned(`{"list":"` + name + `"}`)
		list, failed := d.Instances(ctx, "cn1")
		if err != nil || failed != nil || len(list) != want {
			t.Errorf("%s: %d instances, %v, %v", name, len(list), err, failed)
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
	for names, want := range map[string]int{"": 0, "garbled": 4, "storm": 20_000} {
		events := 0
		if err := faulty(t, `{"events":"`+names+`"}`).WatchInstances(gone,
			func(string, string) { events++ }); err != nil || events != want {
			t.Errorf("%q: %d events, %v", names, events, err)
		}
	}
}
