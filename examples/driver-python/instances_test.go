// SPDX-License-Identifier: Apache-2.0

package driverpython_test

import (
	"errors"
	"maps"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/internal/pluginhost"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func instance() plugins.InstanceSpec {
	return plugins.InstanceSpec{
		UUID: guest, Name: "web", ProjectID: "p",
		UserID: "u", Flavor: plugins.Flavor{Name: "m1.tiny", VCPUs: 1, MemoryMB: 64, RootGB: 1},
		Allocations: providertree.ProviderResources{rootUUID: {"VCPU": 1, "MEMORY_MB": 64}}, UserData: []byte("#!"),
	}
}

// TestInstancesOutliveTheProcess makes, stops and removes an instance, with a driver that is killed
// in between.
func TestInstancesOutliveTheProcess(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	state := t.TempDir()
	happened := make(chan string, 1000)
	r := startSpec(t, func(s *pluginhost.Spec) {
		s.Config, s.HostInfo.StateDir = []byte(`{"look_every":0.05}`), state
		s.InstanceChanged = func(node, uuid string) { happened <- node + " " + uuid }
	})
	tree, _, err := r.update(node(t), nil)
	testproc.Check(t, err)
	want := plugins.Instance{UUID: guest, Name: "web", Power: plugins.PowerRunning, HypervisorName: "files-99999999"}
	for range 2 {
		if is, err := r.Spawn(r.ctx(), "cn1", instance(), tree); err != nil || is != want {
			t.Fatal(is, err)
		}
	}
	if guests, err := r.Guests(r.ctx(), tree, "cn1"); err != nil || len(guests) != 1 ||
		!cmp.Equal(guests[0].Resources, instance().Allocations) {
		t.Error("guests:", guests, err)
	}
	want.Power = plugins.PowerShutdown
	if is, err := r.SetPower(r.ctx(), "cn1", guest, plugins.PowerShutdown, false); err != nil || is != want {
		t.Error(is, err)
	}
	r.await("an event", func() bool { return len(happened) > 0 })

	first := r.Status().PID
	testproc.Check(t, syscall.Kill(first, syscall.SIGKILL))
	r.awaitRestart(first)
	if there, err := r.Instances(r.ctx(), "cn1"); err != nil || !cmp.Equal([]plugins.Instance{want}, there) {
		t.Error("after a restart:", there, err)
	}
	for range 2 {
		testproc.NoError(t, r.Destroy(r.ctx(), "cn1", guest))
	}
	if there, err := r.Instances(r.ctx(), "cn1"); err != nil || len(there) != 0 {
		t.Error("in the end:", there, err)
	}
	if _, err := r.SetPower(r.ctx(), "cn1", guest, plugins.PowerRunning, true); !errors.Is(err,
		plugins.ErrInstanceNotFound) {
		t.Error("one that is gone:", err)
	}
	impossible := instance()
	impossible.Image = "none"
	var fault *plugins.InstanceFault
	if _, err := r.Spawn(r.ctx(), "cn1", impossible, tree); !errors.As(err, &fault) || fault.UUID != guest {
		t.Error("an image that there is not:", err)
	}
}

// TestLayoutsAndRenamesArrive migrates a tree without a recorded layout, as the agent does when it
// starts.
func TestLayoutsAndRenamesArrive(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := start(t, `{"gpus":{"a":4,"b":4},"former_nodes":["old"]}`)
	version, err := r.LayoutVersion(r.ctx())
	if err != nil || version != 2 {
		t.Fatal(version, err)
	}
	tree := node(t)
	testproc.Try(tree.SetInventory(rootUUID, "CUSTOM_VGPU", providertree.Inventory{Total: 8})).Or(t)
	given := providertree.Allocations{guest: {Resources: providertree.ProviderResources{rootUUID: {"CUSTOM_VGPU": 3}}}}
	if _, _, err := r.update(tree, nil); !errors.Is(err, plugins.ErrReshapeNeeded) {
		t.Error("while the agent runs:", err)
	}
	renamed := plugins.ClassRenames{}
	for from := range version {
		if tree, given, err = r.ReshapeStep(r.ctx(), tree, "cn1", from, given); err != nil {
			t.Fatal(err)
		}
		maps.Copy(renamed, r.ClassRenames())
	}
	child, _ := tree.ProviderByName("cn1_a")
	testproc.Same(t, cmp.Diff(providertree.ProviderResources{child.UUID: {"VGPU": 3}}, given[guest].Resources))
	testproc.Same(t, cmp.Diff(plugins.ClassRenames{"CUSTOM_VGPU": "VGPU"}, renamed))
	if _, _, err := r.update(tree, given); err != nil {
		t.Error("after the steps:", err)
	}
	if traits := r.Capabilities("cn1"); len(traits) == 0 || traits["COMPUTE_NET_ATTACH_INTERFACE"] {
		t.Error("capabilities:", traits)
	}
	if gone, err := r.NodeDeleted(r.ctx(), plugins.Node{Name: "old", UUID: rootUUID}); err != nil || !gone {
		t.Error(gone, err)
	}
}
