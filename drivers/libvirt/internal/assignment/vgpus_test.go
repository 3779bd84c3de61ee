// SPDX-License-Identifier: Apache-2.0

package assignment_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/assignment"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const (
	sixGiB = "nvidia-1151"
	card   = "pci_0000_41_00_0"
)

func function(n uint8) machine.Address { return machine.Address{Bus: 0x41, Function: n} }

// withCard is a host whose GPU makes vGPUs on four virtual functions: the second has one of another
// type, the third one that no guest uses, and on the last nothing can be made.
func withCard(amount int64) assignment.Request {
	r := nested()
	at := function(0)
	r.Machine.Parents = append(r.Machine.Parents, machine.MdevParent{
		Name: card, Address: &at, Cell: 1,
		Types: []machine.MdevType{{ID: sixGiB, API: "vfio-pci", Available: 1}},
		Mdevs: []machine.Mdev{{UUID: function(5).String(), Type: "nvidia-1147", Active: true},
			{UUID: function(6).String(), Type: sixGiB, Active: true}},
		Functions: []machine.VGPUFunction{
			{Address: function(4), Creatable: []string{"nvidia-1147", sixGiB}},
			{Address: function(5), Type: "nvidia-1147"}, {Address: function(6), Type: sixGiB},
			{Address: function(7), Creatable: []string{"nvidia-1147"}},
		},
	})
	r.Providers["card"] = assignment.Provider{Kind: assignment.MdevParent, Parent: card, Type: sixGiB, Class: "VGPU"}
	r.Instance.Allocations = allocations{"root": {"VCPU": 2, "MEMORY_MB": 1024}, "card": {"VGPU": amount}}
	return r
}

func vgpu(n uint8, made bool) domain.VGPU {
	return domain.VGPU{Function: function(n), Parent: card, Type: sixGiB, Made: made}
}

// TestDecideVGPUs: what is there and free comes first, then what can be made; what guests have, or
// the whole GPU, is not given twice.
func TestDecideVGPUs(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, c := range map[string]struct {
		amount  int64
		domains []domain.Domain
		want    []domain.VGPU
		fault   string
	}{
		"one that is there":  {1, nil, []domain.VGPU{vgpu(6, false)}, ""},
		"and one to be made": {2, nil, []domain.VGPU{vgpu(6, false), vgpu(4, true)}, ""},
		"more than fit":      {3, nil, nil, "granted VGPU, which is 1 more than are free"},
		"one that a guest has": {1, []domain.Domain{{UUID: id(1), VGPUs: []domain.VGPU{vgpu(6, false)}}},
			[]domain.VGPU{vgpu(4, true)}, ""},
		"a function that a guest has as a device": {2, []domain.Domain{{UUID: id(1), PCI: managed(function(4))}},
			nil, "1 more than are free"},
		"a GPU that a guest has": {1, []domain.Domain{{UUID: id(1), PCI: managed(function(0))}},
			nil, "1 more than are free"},
		"its own": {1, []domain.Domain{{UUID: uuid, VGPUs: []domain.VGPU{vgpu(6, false)}}},
			[]domain.VGPU{vgpu(6, false)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := withCard(c.amount)
			r.Domains = c.domains
			d, err := assignment.Decide(r)
			if c.fault != "" {
				if err == nil || !strings.Contains(err.Error(), c.fault) {
					t.Errorf("got %v, want a fault with %q", err, c.fault)
				}
				return
			}
			testproc.Check(t, err)
			testproc.Samef(t, cmp.Diff(c.want, d.VGPUs), "its vGPUs")
		})
	}
}

// TestVGPUFacts: a guest's vGPUs are of the GPU that its mark names, and near that GPU.
func TestVGPUFacts(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	host := assignment.NewHost(withCard(1).Machine)
	d := domain.Domain{UUID: uuid, VGPUs: []domain.VGPU{vgpu(4, true), vgpu(6, false)}}
	testproc.Samef(t, cmp.Diff(map[string][]string{card: {"0000:41:00.4", "0000:41:00.6"}}, host.Facts(d).Mdevs),
		"its devices by parent")
	testproc.Equal(t, host.DeviceCell(d), 1, "its devices are in cell %d")
	d.VGPUs[0].Parent = "pci_0000_ff_00_0"
	testproc.Equal(t, host.DeviceCell(d), machine.NoCell, "with one of a GPU that has gone, its devices are in cell %d")
}
