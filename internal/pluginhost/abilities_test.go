// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/internal/pluginhost/driverclient"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// startWithAbilities starts the driver that has all abilities; wrong is what it is to do wrong.
func (r *rig) startWithAbilities(wrong map[string]string) *Plugin {
	return r.mustStart(chaosSpec("able", wrong))
}

func (r *rig) wrong(p *Plugin, ability, how string) {
	r.t.Helper()
	testproc.Check(r.t, p.Reconfigure(context.Background(), chaosSpec("able", map[string]string{ability: how})))
}

func TestLayoutVersionFollowsTheConfiguration(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newRig(t)
	p := r.startWithAbilities(nil)
	if v, err := p.LayoutVersion(context.Background()); v != 3 || err != nil {
		t.Errorf("got %d, %v", v, err)
	}
	r.wrong(p, "layout", "none")
	if v, err := p.LayoutVersion(context.Background()); v != 0 || !errors.Is(err, plugins.ErrUnsupported) {
		t.Errorf("without numbers: %d, %v", v, err)
	}
	for _, how := range []string{"negative", "panic"} {
		if err := p.Reconfigure(context.Background(), chaosSpec("able", map[string]string{"layout": how})); err == nil {
			t.Errorf("%s: accepted", how)
		}
	}
	testproc.Check(t, p.Stop(context.Background()))
	testproc.Try(p.LayoutVersion(context.Background())).
		ErrorIs(t, driverclient.ErrUnavailable, "of a plugin that is down: %v")
}

func TestSteps(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newRig(t)
	p := r.startWithAbilities(nil)
	ctx, consumer := context.Background(), "99999999-2222-3333-4444-555555555555"
	tree, at := oneNode(t),
		providertree.Allocations{consumer: {Resources: providertree.ProviderResources{rootUUID: {"VCPU": 1}}}}
	for from := range 3 {
		given, was := tree.Clone(), at.Clone()
		next, after, err := p.ReshapeStep(ctx, tree, "cn1", from, at)
		testproc.Check(t, err)
		if !tree.Equal(given) || !cmp.Equal(was, at) {
			t.Error("what was passed in was edited")
		}
		renames := map[string]string(nil)
		if from == 2 {
			renames = map[string]string{"CUSTOM_A": "A"}
		}
		testproc.Samef(t, cmp.Diff(renames, p.ClassRenames()), "step %d", from)
		tree, at = next, after
	}
	if !tree.HasTraits(rootUUID, "CUSTOM_STEP_0", "CUSTOM_STEP_1", "CUSTOM_STEP_2") ||
		at[consumer].Resources[rootUUID]["VCPU"] != 4 {
		t.Errorf("got %v", at)
	}
	if _, after, err := p.ReshapeStep(ctx, tree, "cn1", 0, nil); err != nil || after == nil || len(after) != 0 {
		t.Errorf("nothing allocated: %v, %v", after, err)
	}
	for _, from := range []int{-1, 3, 9999, 1 << 40} {
		if _, _, err := p.ReshapeStep(ctx, tree, "cn1", from, at); err == nil ||
			!strings.Contains(err.Error(), "to migrate from") {
			t.Errorf("from %d: %v", from, err)
		}
	}
}

func TestStepsThatGoWrong(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newRig(t)
	spec := chaosSpec("able", nil)
	p := r.mustStart(spec)
	step := func(how string) error {
		t.Helper()
		spec.Config = json.RawMessage(`{"step":"` + how + `"}`)
		testproc.Check(t, p.Reconfigure(context.Background(), spec))
		tree, after, err := p.ReshapeStep(context.Background(), oneNode(t), "cn1", 1, nil)
		if tree != nil || after != nil {
			t.Errorf("%s: a tree came with the error %v", how, err)
		}
		return err
	}
	var failed *plugins.ReshapeFailed
	if err := step("failed"); !errors.As(err, &failed) || len(failed.Violations) != 1 {
		t.Errorf("refused: %v", err)
	}
	if err := step("no-root"); !errors.Is(err, driverclient.ErrBadReply) ||
		!strings.Contains(err.Error(), "migrating from layout version 1") ||
		!strings.Contains(err.Error(), "is missing from the tree") {
		t.Errorf("without the root: %v", err)
	}
	testproc.ErrorHas(t, step("panic"), "panicked in ReshapeStep", "panic: %v")
	testproc.ErrorIs(t, step("crash"), driverclient.ErrUnavailable, "crash: %v")
	_, n := r.await(0, "the end", is(Backoff))
	r.await(n, "the restart", is(Healthy))
	spec.Timeouts.Update = 200 * time.Millisecond // none of the others is to meet it
	testproc.ErrorIs(t, step("hang"), driverclient.ErrNoAnswer, "hang: %v")
}

func TestProductNamesComeWithEachAnswer(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newRig(t)
	p := r.startWithAbilities(nil)
	if got := p.ProductNames("cn1"); got != nil {
		t.Errorf("before the first answer: %v", got)
	}
	update := func(how string, want map[string]string) {
		t.Helper()
		r.wrong(p, "names", how)
		if _, err := r.update(p, nil); err != nil {
			t.Errorf("%s: %v", how, err)
		}
		testproc.Samef(t, cmp.Diff(want, p.ProductNames("cn1")), "%s", how)
	}
	update("", map[string]string{"cn1": "Acme 9000"})
	p.ProductNames("cn1")["cn1"] = "the caller's own copy"
	testproc.Equal(t, p.ProductNames("cn1")["cn1"], "Acme 9000", "got %q")
	if got := p.ProductNames("cn2"); got != nil {
		t.Errorf("of another node: %v", got)
	}
	update("hostile", map[string]string{"cn1": `Acme\u001b[2J; 9000` + strings.Repeat("x", 184) + "..."})
	update("none", nil)
	update("", map[string]string{"cn1": "Acme 9000"})
	p.dropRemoved([]plugins.Node{{Name: "cn2"}})
	if got := p.ProductNames("cn1"); got != nil {
		t.Errorf("of a node that is no more: %v", got)
	}
}

func TestHypervisorComesWithEachAnswer(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newRig(t)
	p := r.startWithAbilities(nil)
	is := func(what, node string, want plugins.Hypervisor, asked bool) {
		t.Helper()
		if got, was := p.Hypervisor(node); got != want || was != asked {
			t.Errorf("%s: %+v, asked: %t", what, got, was)
		}
	}
	update := func(how string, want plugins.Hypervisor) {
		t.Helper()
		r.wrong(p, "hypervisor", how)
		testproc.Try(r.update(p, nil)).Or(t)
		is(how, "cn1", want, true)
	}
	acme := plugins.Hypervisor{Type: "Acme", Version: 7002001}
	is("before the first answer", "cn1", plugins.Hypervisor{}, false)
	update("", acme)
	is("another node", "cn2", plugins.Hypervisor{}, false)
	update("hostile", plugins.Hypervisor{Type: `Acme\u001b[2J; ` + strings.Repeat("x", 88) + "..."})
	update("none", plugins.Hypervisor{})
	update("", acme)
	p.dropRemoved([]plugins.Node{{Name: "cn2"}})
	is("a node that is no more", "cn1", plugins.Hypervisor{}, false)
}

func TestCapabilitiesComeWithEachAnswer(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newRig(t)
	p := r.startWithAbilities(nil)
	if got := p.Capabilities("cn1"); got != nil {
		t.Errorf("before the first answer: %v", got)
	}
	update := func(want map[string]bool) {
		t.Helper()
		testproc.Try(r.update(p, nil)).Or(t)
		testproc.Same(t, cmp.Diff(want, p.Capabilities("cn1")))
	}
	first := map[string]bool{"COMPUTE_NET_ATTACH_INTERFACE": true, "COMPUTE_RESCUE_BFV": false}
	update(first)
	if got := p.Capabilities("cn2"); got != nil {
		t.Errorf("of another node: %v", got)
	}
	p.Capabilities("cn1")["COMPUTE_RESCUE_BFV"] = true // the caller's own copy
	for how, want := range map[string]string{"lower": `"lower"`,
		"status": "is the agent's: a driver must not report it"} {
		r.wrong(p, "capabilities", how)
		if _, err := r.update(p, nil); !errors.Is(err, driverclient.ErrBadReply) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", how, err)
		}
		testproc.Samef(t, cmp.Diff(first, p.Capabilities("cn1")), "%s: the last report is not kept", how)
	}
	r.wrong(p, "capabilities", "none")
	update(map[string]bool{})
	testproc.Try(p.AvailableNodes(context.Background())).Or(t)
	if got := p.Capabilities("cn1"); got == nil {
		t.Error("what is known of a node that is there is kept")
	}
	p.dropRemoved([]plugins.Node{{Name: "cn2"}})
	if got := p.Capabilities("cn1"); got != nil {
		t.Errorf("of a node that is no more: %v", got)
	}
}

func TestGuests(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newRig(t)
	p := r.startWithAbilities(nil)
	ask := func() ([]plugins.Guest, error) { return p.Guests(context.Background(), oneNode(t), "cn1") }
	got, err := ask()
	want := []plugins.Guest{
		{UUID: "aaaaaaaa-2222-3333-4444-55555555abcd", Name: "web", ProjectID: "p", UserID: "u",
			Resources: providertree.ProviderResources{rootUUID: {"VCPU": 2}}},
		{UUID: rootUUID},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(diff, err)
	}
	r.wrong(p, "guests", "many")
	if got, err := ask(); len(got) != 10_000 || err != nil {
		t.Errorf("many: %d, %v", len(got), err)
	}
	for how, is := range map[string]error{"not-ready": plugins.ErrNotReady, "unsupported": plugins.ErrUnsupported,
		"no-uuid": driverclient.ErrBadReply, "error": nil, "panic": nil} {
		r.wrong(p, "guests", how)
		if got, err := ask(); got != nil || err == nil || is != nil && !errors.Is(err, is) {
			t.Errorf("%s: %v, %v", how, got, err)
		}
	}
}

func TestNodeDeleted(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newRig(t)
	p := r.startWithAbilities(nil)
	for name, want := range map[string]bool{"gone": true, "cn1": false} {
		if got, err := p.NodeDeleted(context.Background(), plugins.Node{Name: name, UUID: rootUUID}); got != want ||
			err != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	r.wrong(p, "deleted", "error")
	if got, err := p.NodeDeleted(context.Background(), plugins.Node{Name: "gone", UUID: rootUUID}); got || err == nil {
		t.Errorf("an error is no proof: %v, %v", got, err)
	}
}

// TestWithoutTheAbilities: a plugin that announces none of them is not asked.
func TestWithoutTheAbilities(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newRig(t)
	p := r.mustStart(chaosSpec("", nil))
	ctx := context.Background()
	_, version := p.LayoutVersion(ctx)
	_, _, step := p.ReshapeStep(ctx, oneNode(t), "cn1", 0, nil)
	_, guests := p.Guests(ctx, oneNode(t), "cn1")
	_, deleted := p.NodeDeleted(ctx, plugins.Node{Name: "cn1"})
	for call, err := range map[string]error{"version": version, "step": step, "guests": guests, "deleted": deleted} {
		testproc.ErrorIs(t, err, plugins.ErrUnsupported, "%s: %v", call)
	}
	if _, err := r.update(p, nil); err != nil || p.Capabilities("cn1") != nil {
		t.Errorf("capabilities: %v, %v", p.Capabilities("cn1"), err)
	}
	if got := p.ProductNames("cn1"); got != nil {
		t.Errorf("product names: %v", got)
	}
	if got, asked := p.Hypervisor("cn1"); got != (plugins.Hypervisor{}) || !asked {
		t.Errorf("hypervisor: %+v, asked: %t", got, asked)
	}
	testproc.Check(t, p.Stop(ctx))
	_, version = p.LayoutVersion(ctx)
	_, _, step = p.ReshapeStep(ctx, oneNode(t), "cn1", 0, nil)
	_, guests = p.Guests(ctx, oneNode(t), "cn1")
	_, deleted = p.NodeDeleted(ctx, plugins.Node{Name: "cn1"})
	for call, err := range map[string]error{"version": version, "step": step, "guests": guests, "deleted": deleted} {
		if !errors.Is(err, driverclient.ErrUnavailable) || errors.Is(err, plugins.ErrUnsupported) {
			t.Errorf("%s of a plugin that is down: %v", call, err)
		}
	}
}

// TestFakeDriverThreeLayoutsBehind walks a flat tree with a guest through all of its layouts, in a
// real process.
func TestFakeDriverThreeLayoutsBehind(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newRig(t)
	ctx, consumer := context.Background(), "99999999-2222-3333-4444-555555555555"
	machine := `"nodes":[{"name":"cn1","inventories":{"VCPU":{"total":8},"MEMORY_MB":{"total":64},` +
		`"VGPU":{"total":4},"FPGA":{"total":2}}}]`
	spec := Spec{Name: "fake", Config: json.RawMessage(`{"layout_version":1,` + machine + `}`)}
	p := r.mustStart(spec)
	tree := testproc.Try(r.update(p, nil)).Or(t)
	spec.Config = json.RawMessage(`{"layout_version":4,` + machine + `}`)
	testproc.Check(t, p.Reconfigure(ctx, spec))
	to, err := p.LayoutVersion(ctx)
	if to != 4 || err != nil {
		t.Fatalf("layout version %d, %v", to, err)
	}
	if _, _, err := p.UpdateProviderTree(ctx, tree, "cn1", nil); !errors.Is(err, plugins.ErrReshapeNeeded) {
		t.Errorf("while the agent runs: %v", err)
	}
	at := providertree.Allocations{consumer: {Resources: providertree.ProviderResources{rootUUID: {"VCPU": 2,
		"MEMORY_MB": 32, "VGPU": 1, "CUSTOM_FPGA": 1}}}}
	for from := range to {
		if tree, at, err = p.ReshapeStep(ctx, tree, "cn1", from, at); err != nil {
			t.Fatal(err)
		}
	}
	testproc.Same(t, cmp.Diff(map[string]string{"CUSTOM_FPGA": "FPGA"}, p.ClassRenames()))
	last, _, err := p.UpdateProviderTree(ctx, tree, "cn1", at)
	if err != nil || !last.Equal(tree) {
		t.Errorf("there is something left to do after the last step: %v", err)
	}
	testproc.Same(t, cmp.Diff(providertree.Resources{"VCPU": 2, "MEMORY_MB": 32, "VGPU": 1, "FPGA": 1},
		at[consumer].Totals()))
	gpu, _ := tree.ProviderByName("cn1_gpu_0")
	if cell, _ := tree.Provider(gpu.ParentUUID); cell.Name != "cn1_numa_0" {
		t.Errorf("cn1_gpu_0 is below %q", cell.Name)
	}
}

// TestAbilitiesAreThoseOfInstances: they are announced by name, and mean nothing of a plugin that
// does not manage instances.
func TestAbilitiesAreThoseOfInstances(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for announced, want := range map[string][]string{
		"":                                       nil,
		"console":                                nil,
		"instances":                              {},
		"instances,guests,migrate,later,console": {"console", "migrate"},
		"instances,console_log":                  {"console-log"},
		"instances,console-log":                  {},
	} {
		p := newPlugin(Spec{Name: "x"}, pluginDeps{})
		p.status.Capabilities = strings.Split(announced, ",")
		testproc.Samef(t, cmp.Diff(want, p.Abilities()), "announced %q", announced)
	}
}
