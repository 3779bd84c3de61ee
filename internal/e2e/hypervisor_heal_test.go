// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/internal/testhost"
)

// novaMetadata is as Nova 26.2.2's own code writes it.
const novaMetadata = `<nova:instance xmlns:nova="http://openstack.org/xmlns/libvirt/nova/1.1">
  <nova:package version="26.2.2"/>
  <nova:name>web</nova:name>
  <nova:creationTime>2023-11-14 22:13:20</nova:creationTime>
  <nova:flavor name="m1.tiny">
    <nova:memory>64</nova:memory>
    <nova:disk>1</nova:disk>
    <nova:swap>100</nova:swap>
    <nova:ephemeral>0</nova:ephemeral>
    <nova:vcpus>2</nova:vcpus>
  </nova:flavor>
  <nova:owner>
    <nova:user uuid="a1d2f3b4c5e64f7a8b9c0d1e2f3a4b5c">demo</nova:user>
    <nova:project uuid="0f1e2d3c4b5a69788796a5b4c3d2e1f0">demo</nova:project>
  </nova:owner>
  <nova:root type="image" uuid="5b2c3d4e-0001-4000-8000-000000000001"/>
</nova:instance>`

// healed: guests that Nova made and of which Placement knows nothing get the allocations of their flavors. Those that have more than a
// flavor's sizes are named, with Nova's command.
func healed(r *residence, _ func() *residence) {
	fromVolume := strings.Replace(novaMetadata, `<nova:root type="image" uuid="5b2c3d4e-0001-4000-8000-000000000001"/>`, "", 1)
	guests := []testhost.Domain{
		{Name: "henry", VCPUs: 2, MemoryMiB: 64, Metadata: novaMetadata, Off: true},
		{Name: "iris", VCPUs: 1, MemoryMiB: 64, Metadata: novaMetadata, Off: true, Pins: []testhost.Pin{{VCPU: 0, CPUs: []int{6}}}},
		{Name: "jack", VCPUs: 2, MemoryMiB: 64, Metadata: fromVolume, Off: true},
		{Name: "kate", VCPUs: 2, MemoryMiB: 64, Metadata: novaMetadata, Off: true, PCI: []string{"0000:06:00.3"}},
	}
	for _, guest := range guests {
		guest.UUID = uuidFor(guest.Name)
		check(r.t, r.host.Define(r.t.Context(), guest.XML("qemu")))
		defer func() {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			check(r.t, r.host.Undefine(ctx, guest.Name))
		}()
	}
	r.configure(novasOptions)
	r.settle()
	before := r.see()
	for _, flag := range []string{"--dry-run", "-o=table"} {
		out, code := command(r.t, "allocations", "heal", flag, "--config", r.config)
		if code != 1 { // there are guests that are not healed
			r.t.Errorf("heal ended with %d:\n%s", code, out)
		}
		for name, why := range map[string]string{"iris": "dedicated processors", "jack": "its root disk is a volume", "kate": "PCI devices"} {
			if !strings.Contains(out, why) || !strings.Contains(out, "nova-manage placement heal_allocations --instance "+uuidFor(name)) {
				r.t.Errorf("it is not said of %s that %s, and what to do:\n%s", name, why, out)
			}
		}
		if flag == "--dry-run" && !cmp.Equal(before, r.see()) {
			r.t.Error("the dry run wrote")
		}
	}
	got := r.see()
	henry := uuidFor("henry")
	want := holding{henry: {"cn1": {"VCPU": 2, "MEMORY_MB": 64, "DISK_GB": 2}}}
	if diff := cmp.Diff(want, got.Holding); diff != "" {
		r.t.Errorf("allocations (-want +got): %s", diff)
	}
	if owner := got.Owners[henry]; owner != "0f1e2d3c4b5a69788796a5b4c3d2e1f0 a1d2f3b4c5e64f7a8b9c0d1e2f3a4b5c INSTANCE" {
		r.t.Errorf("the owner is %q", owner)
	}
}
