// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestSuccessorRemovesWhatTheFormerDriverLeft: a node passes from one driver to another. What only
// the former one reported goes, on the root and below it; what is allocated stays closed until it
// is free, and is not shown to the new driver meanwhile; what others wrote stays.
func TestSuccessorRemovesWhatTheFormerDriverLeft(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	known := tree(t, `
cn1 VCPU=16 PCPU=4 HW_A HW_B COMPUTE_NODE CUSTOM_ADMIN @mine
  gpu0 VGPU=4 CUSTOM_FAST
  gpu1 VGPU=4
  nic NET_BW_EGR_KILOBIT_PER_SEC=100
  bare`)
	former := owned(t, known, `
bare driver
cn1 driver VCPU:driver PCPU:driver HW_A:driver HW_B:driver COMPUTE_NODE:agent @mine:driver
gpu0 driver VGPU:driver CUSTOM_FAST:driver
gpu1 driver VGPU:driver`)
	former.Driver = "old"
	bare := tree(t, "cn1 VCPU=8 HW_B")
	record := Adopt(known, bare, root, "cn1", "fake", nil).Inherit(former, known, bare)
	if want := strings.TrimSpace(`
bare former-driver
cn1 driver PCPU:former-driver VCPU:driver @` + uid("mine") + `:former-driver COMPUTE_NODE:agent HW_A:former-driver HW_B:driver
gpu0 former-driver VGPU:former-driver CUSTOM_FAST:former-driver
gpu1 former-driver VGPU:former-driver`); owners(record) != want {
		t.Errorf("(- want, + got):\n%s", cmp.Diff(want, owners(record)))
	}
	content, err := encode(record)
	if err != nil || !strings.Contains(string(content), `"version": 3,`) {
		t.Errorf("%v, written as %s", err, content)
	}
	if again, err := decode(content); err != nil || !again.Equal(record) {
		t.Errorf("%v, read as %s", err, owners(again))
	}
	layers := []Layer{{Owner: Agent, Providers: map[string]LayerProvider{root: {Traits: []string{"COMPUTE_NODE"}}}}}
	pass := func(used providertree.ProviderResources) {
		t.Helper()
		base := Strip(known, record)
		answer := base.Clone() // the new driver changes what it knows, and leaves everything else
		testproc.Try(answer.SetInventory(root, "VCPU", providertree.Inventory{Total: 8})).Or(t)
		if diff := cmp.Diff(lines(tree(t, `
cn1 VCPU=8 HW_B CUSTOM_ADMIN
  nic NET_BW_EGR_KILOBIT_PER_SEC=100`)), lines(answer)); diff != "" {
			t.Errorf("what the driver was shown, and answered (- want, + got):\n%s", diff)
		}
		result, err := Merge(Input{Root: root, Node: "cn1", Driver: "fake", Known: known, Base: base, Answer: answer,
			Record: record, Layers: layers})
		testproc.Check(t, err)
		desired, draining, err := Drain(known, result.Tree, used, nil)
		testproc.Check(t, err)
		record = result.Record.Exact(record, desired).Hold(base, desired, draining)
		known = desired
	}
	pass(providertree.ProviderResources{uid("gpu0"): {"VGPU": 3}})
	if diff := cmp.Diff(lines(tree(t, `
cn1 VCPU=8 HW_B COMPUTE_NODE CUSTOM_ADMIN
  nic NET_BW_EGR_KILOBIT_PER_SEC=100
  gpu0 VGPU=3,reserved=3 CUSTOM_FAST`)), lines(known)); diff != "" {
		t.Errorf("while a guest uses a GPU (- want, + got):\n%s", diff)
	}
	pass(nil)
	if diff := cmp.Diff(lines(tree(t, `
cn1 VCPU=8 HW_B COMPUTE_NODE CUSTOM_ADMIN
  nic NET_BW_EGR_KILOBIT_PER_SEC=100`)), lines(known)); diff != "" {
		t.Errorf("at the end (- want, + got):\n%s", diff)
	}
	if content, err := encode(record); err != nil || !strings.Contains(string(content), `"version": 1,`) {
		t.Errorf("%v, a record without anything of a former driver's is %s", err, content)
	}
}
