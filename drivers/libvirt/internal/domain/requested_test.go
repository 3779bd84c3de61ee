// SPDX-License-Identifier: Apache-2.0

package domain_test

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestRequested reads a domain of Nova 26, and such as have something more.
func TestRequested(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	raw, err := os.ReadFile("testdata/nova26.xml") // the metadata are as Nova 26.2.2's own code writes them
	testproc.Check(t, err)
	const (
		fileDisk   = `<disk type="file"`
		rootDisk   = `<source file="/var/lib/nova/instances/6c6a2b6e-5d0c-4bb5-9d4c-6a3a2f5f8a11/disk"/>`
		rootImage  = `<nova:root type="image" uuid="5b2c3d4e-0001-4000-8000-000000000001"/>`
		rootVolume = `<source protocol="rbd" ` +
			`name="volumes/volume-1"/><serial>0d4f3b52-6a08-4d29-8e5f-0a0f3f9d2222</serial>`
	)
	replace := func(pairs ...string) func(string) string {
		return func(xml string) string {
			for i := 0; i < len(pairs); i += 2 {
				if !strings.Contains(xml, pairs[i]) {
					t.Fatalf("the domain has no %q", pairs[i])
				}
				xml = strings.Replace(xml, pairs[i], pairs[i+1], 1)
			}
			return xml
		}
	}
	extraSpec := func(name, value string) func(string) string {
		return replace("</nova:flavor>", `<nova:extraSpecs><nova:extraSpec name="`+name+`">`+value+
			`</nova:extraSpec></nova:extraSpecs></nova:flavor>`)
	}
	device := func(xml string) func(string) string { return replace("</devices>", xml+"</devices>") }
	all := map[string]int64{"VCPU": 2, "MEMORY_MB": 2048, "DISK_GB": 27} // 20 + 5 + 1.5, rounded up
	for name, tc := range map[string]struct {
		edit   func(string) string
		shared []int
		want   map[string]int64
		reason string
	}{
		"an image, an ephemeral disk, and a volume attached": {want: all},
		"a root disk in a volume group": {edit: replace(fileDisk, `<disk type="block"`, rootDisk,
			`<source dev="/dev/vg/6c6a2b6e-5d0c-4bb5-9d4c-6a3a2f5f8a11_disk"/>`), want: all},
		"a root disk in a pool of Ceph": {edit: replace(fileDisk, `<disk type="network"`, rootDisk,
			`<source protocol="rbd" name="vms/6c6a2b6e-5d0c-4bb5-9d4c-6a3a2f5f8a11_disk"/>`), want: all},
		"no disk at all": {edit: replace("<nova:disk>20", "<nova:disk>0", "<nova:swap>1536",
			"<nova:swap>0", "<nova:ephemeral>5",
			"<nova:ephemeral>0"), want: map[string]int64{"VCPU": 2, "MEMORY_MB": 2048}},
		"harmless extra specs": {edit: extraSpec("hw:cpu_policy", "shared"), want: all},
		"all of a shared set of one": {edit: replace(`vcpu="0" cpuset="0-3"`, `vcpu="0" cpuset="3"`,
			`vcpu="1" cpuset="0-3"`, `vcpu="1" cpuset="3"`), shared: []int{3}, want: all},
		"pinned": {edit: replace(`vcpu="0" cpuset="0-3"`, `vcpu="0" cpuset="3"`),
			shared: []int{0, 1}, reason: "dedicated processors"},
		"a policy of dedicated processors": {edit: extraSpec("hw:cpu_policy", "dedicated"),
			reason: "dedicated processors"},
		"a volume as root": {edit: replace(rootImage, "", fileDisk, `<disk type="network"`,
			rootDisk, rootVolume), reason: "root disk is a volume"},
		"a volume as root, made from an image": {edit: replace(fileDisk, `<disk type="network"`, rootDisk, rootVolume),
			reason: "root disk is a volume"},
		"a PCI device": {edit: device(
			`<hostdev mode="subsystem" type="pci"><source><address bus="0x06" slot="0x02" ` +
				`function="0x0"/></source></hostdev>`), reason: "PCI devices"},
		"a mediated device": {edit: device(
			`<hostdev mode="subsystem" type="mdev"><source><address ` +
				`uuid="b7c7d4b0-0c1e-4a3d-8a3e-000000000001"/></source></hostdev>`), reason: "mediated devices"},
		"persistent memory": {edit: device(`<memory model="nvdimm" access="shared"/>`),
			reason: "persistent memory"},
		"encrypted": {edit: replace("</devices>",
			`</devices><launchSecurity type="sev"><policy>0x3</policy></launchSecurity>`), reason: "encrypted"},
		"resources by extra spec": {edit: extraSpec("resources:VCPU", "0"), reason: `"resources:VCPU"`},
		"resources of a group by extra spec": {edit: extraSpec("resources_GPU:VGPU", "1"),
			reason: `"resources_GPU:VGPU"`},
		"accelerators": {edit: extraSpec("accel:device_profile", "x"), reason: "Cyborg"},
		"no size":      {edit: replace("<nova:vcpus>2</nova:vcpus>", ""), reason: "no complete flavor"},
		"not Nova's": {edit: replace("http://openstack.org/xmlns/libvirt/nova/1.1", "http://example.org/"),
			reason: "no Nova flavor"},
	} {
		t.Run(name, func(t *testing.T) {
			xml := string(raw)
			if tc.edit != nil {
				xml = tc.edit(xml)
			}
			d := testproc.Try(domain.Parse([]byte(xml))).Or(t)
			got, reason := d.Requested(tc.shared)
			if diff := cmp.Diff(tc.want, got); diff != "" || !strings.Contains(reason, tc.reason) ||
				(reason == "") != (tc.reason == "") {
				t.Errorf("%q, want %q; (-want +got): %s", reason, tc.reason, diff)
			}
		})
	}
}
