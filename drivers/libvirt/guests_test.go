// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"errors"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hypervisor"
	"github.com/compute-agent/compute-agent/internal/testhost"
	"github.com/compute-agent/compute-agent/plugins"
)

const (
	guestUUID = "6c6a2b6e-5d0c-4bb5-9d4c-6a3a2f5f8a11"
	otherUUID = "6c6a2b6e-5d0c-4bb5-9d4c-6a3a2f5f8a12"
)

// novaInstance is what Nova attaches to a domain.
const novaInstance = `<nova:instance xmlns:nova="http://openstack.org/xmlns/libvirt/nova/1.1">
  <nova:package version="31.0.0"/>
  <nova:name>web</nova:name>
  <nova:owner>
    <nova:user uuid="2c5f0a1b">demo</nova:user>
    <nova:project uuid="9d3e4f5a">demo</nova:project>
  </nova:owner>
</nova:instance>`

func TestGuestsAreTheDomains(t *testing.T) {
	d := newDaemon(t, testhost.Sample())
	d.domains = []testhost.Domain{
		{UUID: guestUUID, Name: "instance-00000001", VCPUs: 1, MemoryMiB: 64, Metadata: novaInstance}, {UUID: otherUUID, Name: "somebody's", VCPUs: 1, MemoryMiB: 64},
	}
	r := newRig(t, testhost.Sample(), d.open, nil)
	want := []plugins.Guest{
		{UUID: guestUUID, Name: "instance-00000001", ProjectID: "9d3e4f5a", UserID: "2c5f0a1b"}, {UUID: otherUUID, Name: "somebody's"},
	}
	for range 2 {
		got, err := r.Guests(t.Context(), newTree(t), nodeName)
		if err != nil {
			t.Fatal(err)
		}
		diff(t, "guests", want, got)
	}
	r.mustPass(newTree(t))
	if d.dumps != len(want) {
		t.Errorf("%d domains were described, want each once: passes and the list of guests know the same", d.dumps)
	}
	if got, err := r.Guests(t.Context(), newTree(t), "cn2"); got != nil || err == nil {
		t.Errorf("another node: %v, %v", got, err)
	}
}

// TestGuestsAreAllOrAnError: nothing that goes wrong looks like a host without guests, or with fewer.
func TestGuestsAreAllOrAnError(t *testing.T) {
	broken := errors.New("domain \"x\": internal error")
	for name, c := range map[string]struct {
		break_ func(*daemon)
		want   error
		says   string
	}{
		"no list":                     {func(d *daemon) { d.noDomains = broken }, broken, "internal error"},
		"no list of any":              {func(d *daemon) { d.noDomains = hypervisor.ErrUnsupported }, plugins.ErrUnsupported, ""},
		"libvirt is not there":        {func(d *daemon) { d.away = errors.New("connection refused") }, plugins.ErrNotReady, "cannot be asked"},
		"one cannot be read":          {func(d *daemon) { d.odd = map[string]string{otherUUID: "<domain"} }, nil, "virsh edit"},
		"one is another":              {func(d *daemon) { d.odd = map[string]string{otherUUID: d.domains[0].XML("qemu")} }, nil, otherUUID},
		"one has two marks of owners": {func(d *daemon) { d.odd = map[string]string{otherUUID: twoMarks} }, nil, "several marks"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDaemon(t, testhost.Sample())
			d.domains = []testhost.Domain{{UUID: guestUUID, Name: "a", VCPUs: 1, MemoryMiB: 64}, {UUID: otherUUID, Name: "b", VCPUs: 1, MemoryMiB: 64}}
			c.break_(d)
			r := newRig(t, testhost.Sample(), d.open, nil)
			got, err := r.Guests(t.Context(), newTree(t), nodeName)
			if got != nil || err == nil || c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, %v", got, err)
			}
			if c.want == nil && errors.Is(err, plugins.ErrNotReady) {
				t.Errorf("%v: waiting does not help", err)
			}
		})
	}
}

const twoMarks = `<domain type='qemu'><name>b</name><uuid>` + otherUUID + `</uuid><memory unit='MiB'>64</memory><vcpu>1</vcpu><metadata>` +
	`<instance xmlns='` + domain.Namespace + `'/><instance xmlns='` + domain.Namespace + `'/></metadata></domain>`
