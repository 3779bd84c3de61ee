// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"errors"
	"testing"

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
	d.guests = []hypervisor.Guest{{UUID: guestUUID, Name: "instance-00000001", Metadata: novaInstance}, {UUID: otherUUID, Name: "somebody's"}}
	r := newRig(t, testhost.Sample(), d.open, nil)
	got, err := r.Guests(t.Context(), newTree(t), nodeName)
	if err != nil {
		t.Fatal(err)
	}
	diff(t, "guests", []plugins.Guest{
		{UUID: guestUUID, Name: "instance-00000001", ProjectID: "9d3e4f5a", UserID: "2c5f0a1b"}, {UUID: otherUUID, Name: "somebody's"},
	}, got)
	if got, err := r.Guests(t.Context(), newTree(t), "cn2"); got != nil || err == nil {
		t.Errorf("another node: %v, %v", got, err)
	}
}

// TestGuestsAreAllOrAnError: nothing that goes wrong looks like a host without guests.
func TestGuestsAreAllOrAnError(t *testing.T) {
	broken := errors.New("domain \"x\": internal error")
	for name, c := range map[string]struct{ fails, want error }{
		"one cannot be read":   {broken, broken},
		"no list of any":       {hypervisor.ErrUnsupported, plugins.ErrUnsupported},
		"libvirt is not there": {nil, plugins.ErrNotReady},
	} {
		d := newDaemon(t, testhost.Sample())
		d.noGuests = c.fails
		if c.fails == nil {
			d.away = errors.New("connection refused")
		}
		r := newRig(t, testhost.Sample(), d.open, nil)
		if got, err := r.Guests(t.Context(), newTree(t), nodeName); got != nil || !errors.Is(err, c.want) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestOwner(t *testing.T) {
	for metadata, want := range map[string][2]string{
		"":           {"", ""},
		novaInstance: {"9d3e4f5a", "2c5f0a1b"},
		`<instance><owner><project uuid="p"/></owner></instance>`: {"p", ""},
		`<something/>`:                       {"", ""},
		`<instance><owner><project uuid="p"`: {"", ""},
	} {
		if project, user := owner(metadata); project != want[0] || user != want[1] {
			t.Errorf("%s: %s, %s", metadata, project, user)
		}
	}
}
