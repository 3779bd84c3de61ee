// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"errors"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hypervisor"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testhost"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const (
	guestUUID = "6c6a2b6e-5d0c-4bb5-9d4c-6a3a2f5f8a11"
	otherUUID = "6c6a2b6e-5d0c-4bb5-9d4c-6a3a2f5f8a12"
)

// novaInstance is what Nova attaches to a domain.
const novaInstance = `<nova:instance xmlns:nova="http://openstack.org/xmlns/libvirt/nova/1.1">
  <nova:package version="26.2.2"/>
  <nova:name>web</nova:name>
  <nova:flavor name="m1.small">
    <nova:memory>2048</nova:memory>
    <nova:disk>20</nova:disk>
    <nova:swap>0</nova:swap>
    <nova:ephemeral>0</nova:ephemeral>
    <nova:vcpus>2</nova:vcpus>
  </nova:flavor>
  <nova:owner>
    <nova:user uuid="2c5f0a1b">demo</nova:user>
    <nova:project uuid="9d3e4f5a">demo</nova:project>
  </nova:owner>
  <nova:root type="image" uuid="5b2c3d4e-0001-4000-8000-000000000001"/>
</nova:instance>`

func TestGuestsListsTheDomains(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	d := newDaemon(t, testhost.Sample())
	d.domains = []testhost.Domain{
		{UUID: guestUUID, Name: "instance-00000001", VCPUs: 1, MemoryMiB: 64, Metadata: novaInstance},
		{UUID: otherUUID, Name: "unmanaged", VCPUs: 1, MemoryMiB: 64},
	}
	r := newRig(t, testhost.Sample(), d.open, nil)
	want := []plugins.Guest{
		{
			UUID: guestUUID, Name: "instance-00000001", ProjectID: "9d3e4f5a", UserID: "2c5f0a1b", FromFlavor: true,
			Resources: providertree.ProviderResources{nodeUUID: {"VCPU": 2, "MEMORY_MB": 2048, "DISK_GB": 20}},
		},
		{UUID: otherUUID, Name: "unmanaged", ResourcesUnknown: notNovas},
	}
	for range 2 {
		got := testproc.Try(r.Guests(t.Context(), treeWithDisk(t), nodeName)).Or(t)
		diff(t, "guests", want, got)
	}
	r.mustPass(newTree(t))
	testproc.Equal(t, d.dumps, len(want), "%d domains were described")
	if got, err := r.Guests(t.Context(), newTree(t), "cn2"); got != nil || err == nil {
		t.Errorf("another node: %v, %v", got, err)
	}
}

// notNovas is the message about a domain that has no metadata.
const notNovas = "its domain has no Nova metadata. What to do: openstack resource provider allocation set " + otherUUID

func treeWithDisk(t *testing.T) *providertree.Tree {
	t.Helper()
	tree := newTree(t)
	testproc.Try(tree.SetInventory(nodeUUID, "DISK_GB", providertree.Inventory{Total: 100})).Or(t)
	return tree
}

// TestGuestsOfNovaThatCannotBeHealed: the message names the guest, the reason, and the command with
// which Nova heals it.
func TestGuestsOfNovaThatCannotBeHealed(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, c := range map[string]struct {
		domain testhost.Domain
		tree   func(*testing.T) *providertree.Tree
		why    string
	}{
		"pinned": {testhost.Domain{Pins: []testhost.Pin{{VCPU: 0, CPUs: []int{3}}}}, treeWithDisk,
			"it has dedicated processors"},
		"a host device": {testhost.Domain{PCI: []string{"0000:06:00.2"}}, treeWithDisk, "it has PCI devices"},
		"a volume": {testhost.Domain{Metadata: strings.Replace(novaInstance, "<nova:root ", "<nova:none ", 1)},
			treeWithDisk, "its root disk is a volume"},
		"no disk space": {testhost.Domain{}, newTree, "has an inventory of DISK_GB"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDaemon(t, testhost.Sample())
			c.domain.UUID, c.domain.Name, c.domain.VCPUs, c.domain.MemoryMiB = guestUUID, "a", 1, 64
			if c.domain.Metadata == "" {
				c.domain.Metadata = novaInstance
			}
			d.domains = []testhost.Domain{c.domain}
			r := newRig(t, testhost.Sample(), d.open, nil)
			got, err := r.Guests(t.Context(), c.tree(t), nodeName)
			if err != nil || len(got) != 1 {
				t.Fatal(got, err)
			}
			if g := got[0]; g.Resources != nil || g.FromFlavor || g.ProjectID == "" ||
				!strings.Contains(g.ResourcesUnknown, c.why) ||
				!strings.HasSuffix(g.ResourcesUnknown, "nova-manage placement heal_allocations --instance "+guestUUID) {
				t.Errorf("%+v", g)
			}
		})
	}
}

// TestGuestsOnSharedStorage: disk space is of the one provider that shares it with the node.
func TestGuestsOnSharedStorage(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const storage, aggregate = "5e2a3b91-7c60-4ff4-8d84-0b2bd9a9f509", "5e2a3b91-7c60-4ff4-8d84-0b2bd9a9f510"
	tree := newTree(t)
	_, err := tree.SetAggregates(nodeUUID, []string{aggregate})
	if err == nil {
		err = tree.Populate([]providertree.Provider{{
			UUID: storage, Name: "nfs", Generation: 1, Inventories: providertree.Inventories{"DISK_GB": {Total: 1000}},
			Traits: []string{providertree.TraitSharesViaAggregate}, Aggregates: []string{aggregate},
		}})
	}
	testproc.Check(t, err)
	d := newDaemon(t, testhost.Sample())
	d.domains = []testhost.Domain{{UUID: guestUUID, Name: "a", VCPUs: 1, MemoryMiB: 64, Metadata: novaInstance}}
	got := testproc.Try(newRig(t, testhost.Sample(), d.open, nil).Guests(t.Context(), tree, nodeName)).Or(t)
	diff(t, "resources", providertree.ProviderResources{nodeUUID: {"VCPU": 2, "MEMORY_MB": 2048},
		storage: {"DISK_GB": 20}}, got[0].Resources)
}

// TestGuestsInCells: with NUMA cells as providers, what is bound to a cell is of that cell.
func TestGuestsInCells(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	host := testhost.Sample()
	var cpus []int
	for _, cpu := range host.CPUs {
		if cpu.Cell == 1 && !cpu.Offline {
			cpus = append(cpus, cpu.ID)
		}
	}
	d := newDaemon(t, host)
	d.domains = []testhost.Domain{
		{
			UUID: guestUUID, Name: "bound", VCPUs: 2, MemoryMiB: 64, Metadata: novaInstance,
			Memory: &testhost.MemoryPlacement{Mode: "strict", Cells: []int{1}},
			Pins:   []testhost.Pin{{VCPU: 0, CPUs: cpus}, {VCPU: 1, CPUs: cpus}},
		},
		{UUID: otherUUID, Name: "unbound", VCPUs: 2, MemoryMiB: 64, Metadata: novaInstance},
	}
	r := newRig(t, host, d.open, map[string]any{"numa": "nested"})
	tree := newTree(t)
	r.mustPass(tree)
	got := testproc.Try(r.Guests(t.Context(), tree, nodeName)).Or(t)
	cell, found := tree.ProviderByName(nodeName + "_numa_1")
	if !found {
		t.Fatal("the tree has no cells")
	}
	diff(t, "resources", providertree.ProviderResources{cell.UUID: {"VCPU": 2, "MEMORY_MB": 2048},
		nodeUUID: {"DISK_GB": 20}}, got[0].Resources)
	if got[1].Resources != nil || !strings.Contains(got[1].ResourcesUnknown, "not bound to NUMA cells") {
		t.Errorf("%+v", got[1])
	}
}

// TestGuestsAreAllOrAnError: nothing that goes wrong looks like a host without guests, or with
// fewer.
func TestGuestsAreAllOrAnError(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	broken := errors.New("domain \"x\": internal error")
	for name, c := range map[string]struct {
		break_ func(*daemon)
		want   error
		says   string
	}{
		"no list": {func(d *daemon) { d.noDomains = broken }, broken, "internal error"},
		"no list of any": {func(d *daemon) { d.noDomains = hypervisor.ErrUnsupported },
			plugins.ErrUnsupported, ""},
		"libvirt is not there": {func(d *daemon) { d.away = errors.New("connection refused") },
			plugins.ErrNotReady, "is unavailable"},
		"one cannot be read": {func(d *daemon) { d.odd = map[string]string{otherUUID: "<domain"} }, nil,
			"virsh edit"},
		"one is another": {func(d *daemon) {
			d.odd =
				map[string]string{otherUUID: d.domains[0].XML("qemu")}
		}, nil, otherUUID},
		"one has two marks of owners": {func(d *daemon) { d.odd = map[string]string{otherUUID: twoMarks} }, nil,
			"several marks"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDaemon(t, testhost.Sample())
			d.domains = []testhost.Domain{{UUID: guestUUID, Name: "a", VCPUs: 1, MemoryMiB: 64},
				{UUID: otherUUID, Name: "b", VCPUs: 1, MemoryMiB: 64}}
			c.break_(d)
			r := newRig(t, testhost.Sample(), d.open, nil)
			got, err := r.Guests(t.Context(), newTree(t), nodeName)
			if got != nil || err == nil || c.want != nil &&
				!errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, %v", got, err)
			}
			if c.want == nil && errors.Is(err, plugins.ErrNotReady) {
				t.Errorf("%v: waiting does not help", err)
			}
		})
	}
}

const twoMarks = `<domain type='qemu'><name>b</name><uuid>` + otherUUID +
	`</uuid><memory unit='MiB'>64</memory><vcpu>1</vcpu><metadata>` +
	`<instance xmlns='` + domain.Namespace + `'/><instance xmlns='` + domain.Namespace + `'/></metadata></domain>`
