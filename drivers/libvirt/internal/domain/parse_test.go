// SPDX-License-Identifier: Apache-2.0

package domain_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const uuid = "4f0e3f6c-5d6e-4b6f-9d55-5b0f3bd6c0aa"

// novaXML is a pinned instance with a GPU, as Nova has libvirt define it; vcpus are added.
func novaXML(vcpus int) string {
	var pins strings.Builder
	for i := range vcpus {
		fmt.Fprintf(&pins, "    <vcpupin vcpu='%d' cpuset='%d'/>\n", i, 4+i)
	}
	return fmt.Sprintf(`<domain type='kvm' id='7'>
  <name>instance-0000002a</name>
  <uuid>%s</uuid>
  <metadata>
    <nova:instance xmlns:nova="http://openstack.org/xmlns/libvirt/nova/1.1">
      <nova:package version="31.0.0"/>
      <nova:name>web &amp; mail</nova:name>
      <nova:creationTime>2026-01-01 10:00:00</nova:creationTime>
      <nova:flavor name="gpu.large" id="17">
        <nova:memory>4096</nova:memory>
        <nova:disk>20</nova:disk>
        <nova:swap>0</nova:swap>
        <nova:ephemeral>5</nova:ephemeral>
        <nova:vcpus>%d</nova:vcpus>
        <nova:extraSpecs>
          <nova:extraSpec name="hw:cpu_thread_policy">isolate</nova:extraSpec>
        </nova:extraSpecs>
      </nova:flavor>
      <nova:owner>
        <nova:user uuid="u-1">alice</nova:user>
        <nova:project uuid="p-1">shop</nova:project>
      </nova:owner>
      <nova:root type="image" uuid="0c7e9bd0-7a4b-4c7f-8e7b-2f1a4f8d1b11"/>
    </nova:instance>
  </metadata>
  <memory unit='KiB'>4194304</memory>
  <currentMemory unit='KiB'>4194304</currentMemory>
  <memoryBacking>
    <hugepages>
      <page size='2048' unit='KiB' nodeset='0-1'/>
    </hugepages>
  </memoryBacking>
  <vcpu placement='static'>%d</vcpu>
  <cputune>
    <shares>4096</shares>
%s    <emulatorpin cpuset='4-7'/>
  </cputune>
  <numatune>
    <memory mode='strict' nodeset='0-1'/>
    <memnode cellid='0' mode='strict' nodeset='0'/>
    <memnode cellid='1' mode='preferred' nodeset='1'/>
  </numatune>
  <resource><partition>/machine</partition></resource>
  <sysinfo type='smbios'><system><entry name='uuid'>%s</entry></system></sysinfo>
  <os><type arch='x86_64' machine='pc-q35-7.2'>hvm</type><boot dev='hd'/></os>
  <features><acpi/><apic/></features>
  <cpu mode='host-model' check='partial'>
    <topology sockets='2' dies='1' cores='1' threads='2'/>
    <numa>
      <cell id='0' cpus='0-1' memory='2' unit='GiB' memAccess='shared'/>
      <cell id='1' cpus='2-3' memory='2097152' unit='KiB'/>
    </numa>
  </cpu>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <disk type='file' device='disk'>
      <source file='/var/lib/nova/instances/x/disk'/>
      <target dev='vda' bus='virtio'/>
      <address type='pci' domain='0x0000' bus='0x03' slot='0x00' function='0x0'/>
    </disk>
    <disk type='nvme' device='disk'>
      <source type='pci' managed='yes' namespace='1'><address domain='0x0000' bus='0x41' slot='0x00' function='0x0'/></source>
    </disk>
    <interface type='bridge'><source bridge='br-int'/></interface>
    <interface type='hostdev' managed='yes'>
      <source><address type='pci' domain='0x0000' bus='0x06' slot='0x00' function='0x2'/></source>
    </interface>
    <hostdev mode='subsystem' type='pci' managed='yes'>
      <source><address domain='0x10000' bus='0x82' slot='0x1f' function='0x7'/></source>
      <address type='pci' domain='0x0000' bus='0x05' slot='0x00' function='0x0'/>
    </hostdev>
    <hostdev mode='subsystem' type='mdev' managed='no' model='vfio-pci'>
      <source><address uuid='B7C7D4B0-0C1E-4A3D-8A3E-000000000001'/></source>
      <address type='pci' domain='0x0000' bus='0x06' slot='0x00' function='0x0'/>
    </hostdev>
    <hostdev mode='subsystem' type='usb'><source><address bus='1' device='2'/></source></hostdev>
    <memballoon model='virtio'><stats period='10'/></memballoon>
  </devices>
  <launchSecurity type='sev'><cbitpos>47</cbitpos><policy>0x0037</policy></launchSecurity>
</domain>
`, uuid, vcpus, vcpus, pins.String(), uuid)
}

func TestADomainOfNova(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	got := testproc.Try(domain.Parse([]byte(novaXML(4)))).Or(t)
	want := domain.Domain{
		Type: "kvm", UUID: uuid, Name: "instance-0000002a",
		Nova: &domain.Nova{
			Name: "web & mail", FlavorName: "gpu.large", VCPUs: 4, MemoryMB: 4096, DiskGB: 20, EphemeralGB: 5,
			ProjectID: "p-1", ProjectName: "shop", UserID: "u-1", UserName: "alice",
			ImageID:    "0c7e9bd0-7a4b-4c7f-8e7b-2f1a4f8d1b11",
			ExtraSpecs: map[string]string{"hw:cpu_thread_policy": "isolate"},
		},
		MemoryKiB: 4 << 20, CurrentKiB: 4 << 20, VCPUs: 4, CurrentVCPUs: 4,
		Pins: [][]int{{4}, {5}, {6}, {7}}, EmulatorPin: []int{4, 5, 6, 7},
		Memory: domain.NUMATune{Mode: "strict", Nodes: []int{0, 1}, Cells: []domain.MemNode{
			{Cell: 0, Mode: "strict", Nodes: []int{0}}, {Cell: 1, Mode: "preferred", Nodes: []int{1}},
		}},
		Cells: []domain.GuestCell{{ID: 0, VCPUs: []int{0, 1}, MemoryKiB: 2 << 20},
			{ID: 1, VCPUs: []int{2, 3}, MemoryKiB: 2 << 20}},
		Pages: []domain.Pages{{SizeKiB: 2048, Cells: []int{0, 1}}},
		PCI: []machine.PassedDevice{
			{Address: machine.Address{Domain: 0x10000, Bus: 0x82, Slot: 0x1f, Function: 7}, Managed: true},
			{Address: machine.Address{Bus: 6, Function: 2}, Managed: true},
			{Address: machine.Address{Bus: 0x41}, Managed: true},
		},
		Mdevs:    []string{"b7c7d4b0-0c1e-4a3d-8a3e-000000000001"},
		Security: domain.SEVES,
		Disks: []domain.AttachedDisk{{Type: "file", Source: "/var/lib/nova/instances/x/disk", Target: "vda"},
			{Type: "nvme"}},
	}
	testproc.Same(t, cmp.Diff(want, got))
	if project, user := got.Owner(); project != "p-1" || user != "u-1" || !got.Isolated() {
		t.Error(project, user, got.Isolated())
	}
	if _, ours := got.Decision(); ours {
		t.Error("a domain of Nova is taken for one of the agent's")
	}
}

// minimal is a domain with as few elements as possible.
func minimal(inside string) string {
	return "<domain type='qemu'><uuid>" + uuid +
		"</uuid><name>a</name><memory>1024</memory><vcpu>2</vcpu>" + inside + "</domain>"
}

func TestParseReadsDomains(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	base := domain.Domain{Type: "qemu", UUID: uuid,
		Name: "a", MemoryKiB: 1024, CurrentKiB: 1024, VCPUs: 2, CurrentVCPUs: 2}
	for name, c := range map[string]struct {
		text string
		want func(*domain.Domain)
	}{
		"little": {minimal(""), func(*domain.Domain) {}},
		"unknown elements": {minimal("<x:y xmlns:x='z'><uuid>no</uuid></x:y><seclabel/>"),
			func(*domain.Domain) {}},
		"a balloon": {minimal("<currentMemory unit='b'>1025</currentMemory>"),
			func(d *domain.Domain) { d.CurrentKiB = 2 }},
		"a pin of one processor": {minimal("<cputune><vcpupin vcpu='1' cpuset='3'/></cputune>"),
			func(d *domain.Domain) { d.Pins = [][]int{nil, {3}} }},
		"a pin of a processor there is not": {
			minimal("<cputune><vcpupin vcpu='2' cpuset='3'/></cputune>"),
			func(d *domain.Domain) { d.Pins = [][]int{nil, nil} },
		},
		"floating over a set": {
			strings.Replace(minimal(""), "<vcpu>2", "<vcpu placement='static' cpuset='0-1,5' current='1'>2", 1),
			func(d *domain.Domain) { d.CPUSet, d.CurrentVCPUs = []int{0, 1, 5}, 1 },
		},
		"numad decides": {
			minimal("<numatune><memory mode='strict' placement='auto'/></numatune>"),
			func(d *domain.Domain) { d.Memory.Mode = "strict" },
		},
		"pages of the default size": {
			minimal("<memoryBacking><hugepages/></memoryBacking>"),
			func(d *domain.Domain) { d.Pages = []domain.Pages{{}} },
		},
		"common pages": {minimal("<memoryBacking><locked/></memoryBacking>"), func(*domain.Domain) {}},
		"SEV": {minimal("<launchSecurity type='sev'><policy>0x0003</policy></launchSecurity>"),
			func(d *domain.Domain) { d.Security = domain.SEV }},
		"SEV-SNP": {minimal("<launchSecurity type='sev-snp'><policy>0x30000</policy></launchSecurity>"),
			func(d *domain.Domain) { d.Security = domain.SEVSNP }},
		"another encryption": {minimal("<launchSecurity type='s390-pv'/>"),
			func(d *domain.Domain) { d.Security = "s390-pv" }},
		"an interface of a pool": {
			minimal("<devices><interface type='hostdev'><mac address='52:54:00:00:00:01'/></interface></devices>"),
			func(*domain.Domain) {},
		},
		"an address with little in it": {
			minimal("<devices><hostdev mode='subsystem' type='pci'><source><address bus='6' " +
				"slot='0x1'/></source></hostdev></devices>"),
			func(d *domain.Domain) { d.PCI = []machine.PassedDevice{{Address: machine.Address{Bus: 6, Slot: 1}}} },
		},
		"old metadata of Nova": {
			minimal("<metadata><n:instance " +
				"xmlns:n='http://openstack.org/xmlns/libvirt/nova/1.0'><n:flavor><n:vcpus>many</n:vcpus></" +
				"n:flavor></n:instance></metadata>"),
			func(d *domain.Domain) { d.Nova = &domain.Nova{} },
		},
		"metadata of others": {
			minimal("<metadata><instance/><o:instance xmlns:o='urn:o'><o:name>x</o:name></o:instance></metadata>"),
			func(*domain.Domain) {},
		},
	} {
		t.Run(name, func(t *testing.T) {
			want := base
			c.want(&want)
			got := testproc.Try(domain.Parse([]byte(c.text))).Or(t)
			testproc.Same(t, cmp.Diff(want, got))
		})
	}
}

func TestParseRefusesInvalidXML(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	mark := func(inside string) string {
		return "<metadata><a:instance xmlns:a='" + domain.Namespace + "'>" + inside + "</a:instance></metadata>"
	}
	for text, want := range map[string]string{
		"":                                   "empty",
		"<domain>":                           "unexpected EOF",
		"<network/>":                         "expected element type <domain>",
		"<domain/>":                          "is not a uuid",
		minimal(strings.Repeat(" ", 17<<20)): "more than 16777216",
		minimal("&a;"):                       "invalid character entity",
		strings.Replace(minimal(""), uuid,
			"4f0e", 1): "is not a uuid",
		strings.Replace(minimal(""), "<name>a",
			"<name>", 1): "its name is empty",
		strings.Replace(minimal(""), "<vcpu>2",
			"<vcpu>-1", 1): "invalid syntax",
		strings.Replace(minimal(""), "<vcpu>2",
			"<vcpu>99999", 1): "can have 4096",
		strings.Replace(minimal(""), "<vcpu>2",
			"<vcpu current='3'>2", 1): "3 of 2 virtual processors",
		strings.Replace(minimal(""), "<vcpu>2",
			"<vcpu cpuset='1-'>2", 1): "vcpu cpuset",
		strings.Replace(minimal(""), "<memory>1024",
			"<memory>x", 1): "invalid syntax",
		strings.Replace(minimal(""), "<memory>",
			"<memory unit='furlong'>", 1): `"furlong" is not a unit`,
		strings.Replace(minimal(""), "<memory>1024",
			"<memory unit='E'>99", 1): "too much memory",
		minimal("<cputune><vcpupin vcpu='0' cpuset=''/></cputune>"):                            "pinned to nothing",
		minimal("<cputune><vcpupin vcpu='x' cpuset='1'/></cputune>"):                           "invalid syntax",
		minimal("<numatune><memory mode='strict' nodeset='x'/></numatune>"):                    "numatune memory",
		minimal("<devices><hostdev mode='subsystem' type='pci'><source/></hostdev></devices>"): "no PCI address",
		minimal("<devices><hostdev mode='subsystem' type='pci'><source><address bus='0x100' " +
			"slot='0'/></source></hostdev></devices>"): "0x100 is not a bus",
		minimal("<devices><hostdev mode='subsystem' type='pci'><source><address bus='0' " +
			"slot='32'/></source></hostdev></devices>"): "0x20 is not a slot",
		minimal("<devices><hostdev mode='subsystem' type='mdev'><source><address " +
			"uuid='x'/></source></hostdev></devices>"): "hostdev mdev",
		minimal("<launchSecurity type='sev'/>"):               "has no policy",
		minimal(mark("<a:mdev uuid='x'/>")):                   "mark of the agent",
		minimal(mark("<a:name encoding='rot13'>x</a:name>")):  "rot13",
		minimal(mark("<a:name encoding='base64'>x</a:name>")): "in base64",
		minimal("<metadata>" +
			strings.Repeat("<instance xmlns='"+domain.Namespace+"'/>", 2) + "</metadata>"): "several marks",
	} {
		if _, err := domain.Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.200s\n got %v\nwant %s", text, err, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(novaXML(4)))
	f.Add([]byte(minimal("<cputune><vcpupin vcpu='1' cpuset='3-9'/></cputune>")))
	f.Add([]byte(minimal(
		"<cpu><numa><cell cpus='0' memory='1'/></numa></cpu><launchSecurity " +
			"type='sev'><policy>7</policy></launchSecurity>")))
	for _, s := range specs() {
		text := testproc.Try(domain.Write(s)).Or(f)
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		d, err := domain.Parse(text)
		if err != nil {
			if diff := cmp.Diff(domain.Domain{}, d); diff != "" {
				t.Fatal(diff)
			}
			return
		}
		if len(d.UUID) != 36 || d.Name == "" || d.CurrentVCPUs > d.VCPUs || len(d.Pins) > d.VCPUs {
			t.Fatalf("%+v", d)
		}
		if decision, ours := d.Decision(); ours && d.Mark == nil {
			t.Fatalf("%+v", decision)
		}
	})
}
