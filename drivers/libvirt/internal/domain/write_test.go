// SPDX-License-Identifier: Apache-2.0

package domain_test

import (
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"libvirt.org/go/libvirtxml"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/internal/extraspecs"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/golden"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// specs are typical instances, by the name of their golden file.
func specs() map[string]domain.Spec {
	instance := func(vcpus, memory int64) plugins.InstanceSpec {
		return plugins.InstanceSpec{
			UUID: uuid, Name: "web", ProjectID: "p-1",
			UserID: "u-1", Flavor: plugins.Flavor{Name: "m1.small", VCPUs: vcpus, MemoryMB: memory},
		}
	}
	root := domain.Disk{Path: "/var/lib/compute-agent/instances/" + uuid + "/root", Format: "qcow2"}
	layer := root
	layer.Backing = domain.Backing{Path: "/var/lib/compute-agent-images/" + uuid, Format: "raw"}
	seed := domain.Disk{Path: "/var/lib/compute-agent/instances/" + uuid + "/seed.iso", Format: "raw", ReadOnly: true}

	floating := domain.Spec{
		Node: "cn1", Instance: instance(2, 512), Type: "qemu", Arch: "x86_64", Disks: []domain.Disk{root},
		Decision: domain.Decision{VCPUs: [][]int{{0, 1, 2, 3}, {0, 1, 2, 3}}, Emulator: []int{0, 1, 2, 3}},
	}
	pinned := domain.Spec{
		Node: "cn1", Instance: instance(4, 4096), Type: "kvm", Arch: "x86_64",
		Disks: []domain.Disk{layer, seed}, ConsoleLog: "/var/lib/compute-agent/instances/" + uuid + "/console.log",
		Decision: domain.Decision{
			VCPUs: [][]int{{4}, {6}, {12}, {14}}, Emulator: []int{0, 1}, Isolated: true, PageKiB: 2048,
			Cells: []domain.Share{{Host: 0, VCPUs: []int{0, 1}, MemoryKiB: 2 << 20},
				{Host: 1, VCPUs: []int{2, 3}, MemoryKiB: 2 << 20}},
			Mdevs: []domain.Mdev{{UUID: "b7c7d4b0-0c1e-4a3d-8a3e-000000000001", Parent: "pci_0000_82_00_0",
				Type: "nvidia-222", API: "vfio-pci", Made: true}},
			PCI: []machine.PassedDevice{{Address: machine.Address{Bus: 6, Function: 2}, Managed: true},
				{Address: machine.Address{Bus: 6, Function: 3}}},
		},
	}
	pinned.Instance.Name = `<"web" & mail>`
	vgpus := domain.Spec{
		Node: "cn1", Instance: instance(1, 1024), Type: "kvm", Arch: "x86_64", Disks: []domain.Disk{root},
		Decision: domain.Decision{
			VCPUs: [][]int{{3}}, Emulator: []int{3},
			VGPUs: []domain.VGPU{{Function: machine.Address{Bus: 0x41, Function: 4}, Parent: "pci_0000_41_00_0",
				Type: "nvidia-1151", Made: true},
				{Function: machine.Address{Bus: 0x41, Function: 5}, Parent: "pci_0000_41_00_0", Type: "nvidia-1151"}},
			PCI: []machine.PassedDevice{{Address: machine.Address{Bus: 6, Function: 2}, Managed: true}},
		},
	}
	arm := domain.Spec{
		Node: "cn1", Instance: instance(1, 1024), Type: "kvm", Arch: "aarch64", Disks: []domain.Disk{root},
		Decision: domain.Decision{
			VCPUs: [][]int{{3}}, Emulator: []int{3},
			Cells: []domain.Share{{Host: 8, VCPUs: []int{0}, MemoryKiB: 1 << 20}},
		},
	}
	arm.Hardware = extraspecs.Hardware{DiskBus: "scsi", Machine: "virt-7.2"}
	arm.Instance.Name = "two\nlines"
	with := func(from domain.Spec, h extraspecs.Hardware) domain.Spec {
		from.Hardware = h
		return from
	}
	encrypted := func(kind domain.Security, model string, stateless bool) domain.Spec {
		s := with(pinned, extraspecs.Hardware{Firmware: "uefi", Encryption: model, Stateless: stateless})
		s.Decision.Encryption = kind
		return s
	}
	off := false
	return map[string]domain.Spec{
		"floating": floating, "pinned": pinned, "aarch64": arm, "vgpus": vgpus,
		"devices": with(floating, extraspecs.Hardware{
			Watchdog: "reset", BootMenu: true, SerialPorts: 3, RNGBytes: 1024, RNGPeriod: 100, GuestAgent: true,
			IOMMU: "intel", PackedRing: true, HPET: true,
			Topology:   extraspecs.Topology{Sockets: 1, Cores: 1, Threads: 2},
			VideoModel: "virtio", VideoRAMMB: 16, PMU: &off,
		}),
		"hidden": with(pinned, extraspecs.Hardware{HideHypervisor: true, LockedMemory: true, NoRNG: true,
			IOMMU: "auto", DiskBus: "sata", VideoModel: "none"}),
		"stateless": with(floating, extraspecs.Hardware{Firmware: "uefi", Stateless: true, SecureBoot: "optional"}),
		"sev":       encrypted(domain.SEV, "amd-sev", false), "sev-es": encrypted(domain.SEVES, "amd-sev-es", false),
		"secure": with(pinned,
			extraspecs.Hardware{Firmware: "uefi", SecureBoot: "required", TPMVersion: "2.0", TPMModel: "tpm-crb"}),
		"uefi": with(floating, extraspecs.Hardware{Firmware: "uefi", SecureBoot: "optional"}),
	}
}

func TestGolden(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, spec := range specs() {
		got, err := domain.Write(spec)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		golden.Text(t, "testdata/"+name+".xml", string(got)+"\n")
	}
}

// TestRealSchema: libvirt's own schema accepts what is written. virsh validates in its own process,
// by the library's test driver.
func TestRealSchema(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	virsh, err := exec.LookPath("virsh")
	if err != nil {
		testproc.NotRun(t,
			"whether libvirt's schema accepts the XML of instances: no virsh (Debian package: libvirt-clients)")
	}
	define := func(text []byte) (string, error) {
		name := filepath.Join(t.TempDir(), "domain.xml")
		testproc.Check(t, os.WriteFile(name, text, 0o600))
		// The test driver takes a definition of any machine type and device, once it is valid.
		out, err := exec.CommandContext(t.Context(), virsh,
			"-c", "test:///default", "define", "--validate", name).CombinedOutput()
		return string(out), err
	}
	for name, spec := range specs() {
		text := testproc.Try(domain.Write(spec)).Or(t)
		if out, err := define(text); err != nil {
			t.Errorf("%s: %v: %s", name, err, out)
		}
		if out, err := define([]byte(strings.Replace(string(text), "<vcpu ", "<vcpus ", 1))); err == nil {
			t.Errorf("%s: libvirt takes anything: %s", name, out)
		}
	}
}

// anyText is text that is hard on XML.
func anyText() *rapid.Generator[string] {
	return rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{
		"", " ", "a ", "]]>", "<!--", "</domain>", "&amp;",
		"\x00", "a\r\nb", `"'`, "\u2028", "\ufffe", "<?xml?>", "&#0;", "é", strings.Repeat("x", 300),
	}))
}

// anySpec is a spec as the agent might have it, with an owner who might be hostile.
func anySpec(t *rapid.T) domain.Spec {
	vcpus := rapid.IntRange(1, 6).Draw(t, "vcpus")
	set := func(label string) []int {
		return slices.Sorted(maps.Keys(rapid.MapOfN(rapid.IntRange(0, 300), rapid.Just(true), 1, 8).Draw(t, label)))
	}
	s := domain.Spec{
		Node: anyText().Draw(t, "node"), Type: rapid.SampledFrom([]string{"kvm", "qemu"}).Draw(t, "type"),
		Arch: rapid.SampledFrom([]string{"x86_64", "aarch64", "s390x", "ppc64le", "riscv64", "loongarch64"}).
			Draw(t, "arch"),
		Instance: plugins.InstanceSpec{
			UUID: uuid, Name: anyText().Draw(t, "name"),
			ProjectID: anyText().Draw(t, "project"), UserID: anyText().Draw(t, "user"),
			Flavor: plugins.Flavor{Name: anyText().Draw(t, "flavor"), VCPUs: int64(vcpus),
				MemoryMB: rapid.Int64Range(1, 1<<20).Draw(t, "memory")},
			Metadata: map[string]string{"</metadata>": "</domain>"},
		},
		Disks:      []domain.Disk{{Path: "/var/lib/a & b/'root'", Format: "raw"}},
		ConsoleLog: rapid.SampledFrom([]string{"", `/tmp/"console"`}).Draw(t, "log"),
	}
	d := &s.Decision
	if rapid.Bool().Draw(t, "pinned") {
		for range vcpus {
			d.VCPUs = append(d.VCPUs, set("pin"))
		}
		d.Emulator = set("emulator")
	}
	d.Isolated = rapid.Bool().Draw(t, "isolated")
	if cells := rapid.IntRange(0, vcpus).Draw(t, "cells"); cells > 0 {
		rest := uint64(s.Instance.Flavor.MemoryMB) * 1024
		for i := range cells {
			share := domain.Share{Host: rapid.IntRange(0, 12).Draw(t, "host"), VCPUs: []int{i},
				MemoryKiB: rest / uint64(cells)}
			if i == cells-1 {
				share.MemoryKiB = rest - uint64(i)*(rest/uint64(cells))
				for v := cells; v < vcpus; v++ {
					share.VCPUs = append(share.VCPUs, v)
				}
			}
			d.Cells = append(d.Cells, share)
		}
		d.PageKiB = rapid.SampledFrom([]uint64{0, 2048, 1 << 20}).Draw(t, "pages")
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "mdevs") {
		d.Mdevs = append(d.Mdevs, domain.Mdev{
			UUID:   "b7c7d4b0-0c1e-4a3d-8a3e-00000000000" + string(rune('0'+i)),
			Parent: rapid.SampledFrom([]string{"pci_0000_82_00_0", "mtty_mtty", "<x>"}).Draw(t, "parent"),
			Type:   "nvidia-222", API: "vfio-pci", Made: rapid.Bool().Draw(t, "made"),
		})
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "vgpus") {
		d.VGPUs = append(d.VGPUs, domain.VGPU{
			Function: machine.Address{Domain: 0xfffffff0, Bus: 0x41, Function: uint8(i)},
			Parent:   rapid.SampledFrom([]string{"pci_0000_41_00_0", "<x>"}).Draw(t, "card"),
			Type:     "nvidia-1151", Made: rapid.Bool().Draw(t, "vgpu made"),
		})
	}
	if s.Arch == "x86_64" && s.Type == "kvm" {
		kinds := map[domain.Security]string{"": "", domain.SEV: "amd-sev", domain.SEVES: "amd-sev-es",
			domain.SEVSNP: "amd-sev-snp"}
		d.Encryption = rapid.SampledFrom([]domain.Security{"", domain.SEV, domain.SEVES, domain.SEVSNP}).
			Draw(t, "encryption")
		if s.Hardware.Encryption = kinds[d.Encryption]; d.Encryption != "" {
			s.Hardware.Firmware, s.Hardware.Stateless = "uefi", d.Encryption == domain.SEVSNP
		}
	}
	for range rapid.IntRange(0, 3).Draw(t, "pci") {
		d.PCI = append(d.PCI, machine.PassedDevice{Managed: rapid.Bool().Draw(t, "managed"), Address: machine.Address{
			Domain: rapid.Uint32().Draw(t, "domain"), Bus: rapid.Uint8().Draw(t, "bus"),
			Slot: rapid.Uint8Range(0, 31).Draw(t, "slot"), Function: rapid.Uint8Range(0, 7).Draw(t, "function"),
		}})
	}
	return s
}

// TestWrittenIsRead: what is written is read again, whatever the owner called it.
func TestWrittenIsRead(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rapid.Check(t, func(t *rapid.T) {
		s := anySpec(t)
		text := testproc.Try(domain.Write(s)).Or(t)
		d, err := domain.Parse(text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		got, ours := d.Decision()
		if diff := cmp.Diff(s.Decision, got); diff != "" || !ours {
			t.Fatalf("%t %s\n%s", ours, diff, text)
		}
		mark := &domain.Mark{
			Node: s.Node, Name: s.Instance.Name, ProjectID: s.Instance.ProjectID, UserID: s.Instance.UserID,
			Flavor:   s.Instance.Flavor.Name,
			Isolated: s.Decision.Isolated, Mdevs: s.Decision.Mdevs, VGPUs: s.Decision.VGPUs,
		}
		if diff := cmp.Diff(mark, d.Mark); diff != "" {
			t.Fatalf("%s\n%s", diff, text)
		}
		want := []any{s.Type, uuid, domain.Name(uuid),
			int(s.Instance.Flavor.VCPUs), uint64(s.Instance.Flavor.MemoryMB) * 1024}
		if diff := cmp.Diff(want, []any{d.Type, d.UUID, d.Name, d.VCPUs, d.MemoryKiB}); diff != "" {
			t.Fatal(diff)
		}
	})
}

// FuzzTextsAddNothing: no text of the owner's can add an element: the elements are the same
// whatever it is.
func FuzzTextsAddNothing(f *testing.F) {
	for _, text := range []string{"a", "</agent:name></agent:instance></metadata><devices/>", "]]>",
		"\x00\xff", "<!--", "&lt;", "\"/>"} {
		f.Add(text)
	}
	structure := func(t *testing.T, owner string) string {
		s := specs()["pinned"]
		s.Instance.Name, s.Instance.ProjectID, s.Instance.UserID, s.Instance.Flavor.Name = owner, owner, owner, owner
		s.Instance.Metadata = map[string]string{owner: owner}
		text := testproc.Try(domain.Write(s)).Or(t)
		var x libvirtxml.Domain
		if err := x.Unmarshal(string(text)); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		x.Title = ""
		d, err := domain.Parse(text)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		mark := *d.Mark
		mark.Name, mark.ProjectID, mark.UserID, mark.Flavor = "", "", "", ""
		x.Metadata = nil
		out := testproc.Try(x.Marshal()).Or(t)
		return out + cmp.Diff(domain.Mark{}, mark)
	}
	f.Fuzz(func(t *testing.T, owner string) {
		if diff := cmp.Diff(structure(t, "web"), structure(t, owner)); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestWriteRefusesInvalidSpecs(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for want, change := range map[string]func(*domain.Spec){
		"not a uuid":                func(s *domain.Spec) { s.Instance.UUID = strings.ToUpper(uuid) },
		"not a domain type":         func(s *domain.Spec) { s.Type = "xen" },
		"not an architecture":       func(s *domain.Spec) { s.Arch = "" },
		"27 disks":                  func(s *domain.Spec) { s.Disks = make([]domain.Disk, 27) },
		"not a disk format":         func(s *domain.Spec) { s.Disks[0].Format = "vmdk" },
		"a disk has no path":        func(s *domain.Spec) { s.Disks[0].Path = "" },
		"not a clean absolute path": func(s *domain.Spec) { s.ConsoleLog = "/tmp/../etc" },
		`"disk" is not a clean`:     func(s *domain.Spec) { s.Disks[0].Path = "disk" },
		"5 virtual processors":      func(s *domain.Spec) { s.Decision.VCPUs = append(s.Decision.VCPUs, []int{1}) },
		"has no CPUs":               func(s *domain.Spec) { s.Decision.VCPUs[1] = nil },
		"but none is chosen":        func(s *domain.Spec) { s.Decision.Cells = nil },
		"is invalid":                func(s *domain.Spec) { s.Decision.Cells[0].VCPUs = nil },
		"in two NUMA cells":         func(s *domain.Spec) { s.Decision.Cells[0].VCPUs = []int{0, 2} },
		"KiB together":              func(s *domain.Spec) { s.Decision.Cells[0].MemoryKiB++ },
		"virtual processors, the":   func(s *domain.Spec) { s.Decision.Cells[0].VCPUs = []int{0} },
		"not a mediated device":     func(s *domain.Spec) { s.Decision.Mdevs[0].UUID = "x" },
		"not a type of vGPUs": func(s *domain.Spec) {
			s.Decision.VGPUs = []domain.VGPU{{Parent: "pci_0000_41_00_0", Type: "nvidia-1\n"}}
		},
	} {
		s := specs()["pinned"]
		change(&s)
		_, err := domain.Write(s)
		var fault *plugins.InstanceFault
		if err == nil || !strings.Contains(err.Error(), want) || errors.As(err, &fault) {
			t.Errorf("got %v, want %s, and no fault of the owner's", err, want)
		}
	}
}

func TestOwnersCannotRequestUnsupportedHardware(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	asks := func(h extraspecs.Hardware) func(*domain.Spec) {
		return func(s *domain.Spec) { s.Hardware = h }
	}
	refuses := func(name string, reasons map[string]func(*domain.Spec)) {
		for want, change := range reasons {
			s := specs()[name]
			change(&s)
			_, err := domain.Write(s)
			var fault *plugins.InstanceFault
			if !errors.As(err, &fault) || !strings.Contains(fault.Reason, want) || fault.UUID != uuid {
				t.Errorf("%s: got %v, want %s", name, err, want)
			}
		}
	}
	lacks := func(trait string, h extraspecs.Hardware) func(*domain.Spec) {
		return func(s *domain.Spec) { s.Hardware, s.Traits = h, map[string]bool{trait: false} }
	}
	on := true
	refuses("aarch64", map[string]func(*domain.Spec){
		"machine type":  asks(extraspecs.Hardware{Machine: "q35'/><x"}),
		"firmware bios": asks(extraspecs.Hardware{Firmware: "bios"}),
		"firmware \"x":  asks(extraspecs.Hardware{Firmware: "x"}),
		"disk bus":      asks(extraspecs.Hardware{DiskBus: "floppy"}),
		"0 VCPUs": func(s *domain.Spec) {
			s.Instance.Flavor.VCPUs,
				s.Decision = 0, domain.Decision{}
		},
		"-1 MB": func(s *domain.Spec) {
			s.Instance.Flavor.MemoryMB,
				s.Decision = -1, domain.Decision{}
		},
		"the architecture \"i686\"": asks(extraspecs.Hardware{Architecture: "i686"}),
		"2 serial ports":            asks(extraspecs.Hardware{SerialPorts: 2}),
		"event timer":               asks(extraspecs.Hardware{HPET: true}),
		"IOMMU intel":               asks(extraspecs.Hardware{IOMMU: "intel"}),
		"its flavor has 1": asks(
			extraspecs.Hardware{Topology: extraspecs.Topology{Sockets: 2, Cores: 1, Threads: 1}}),
	})
	granted := func(kind domain.Security, h extraspecs.Hardware) func(*domain.Spec) {
		return func(s *domain.Spec) { s.Hardware, s.Decision.Encryption = h, kind }
	}
	refuses("pinned", map[string]func(*domain.Spec){
		"for it":              granted(domain.SEV, extraspecs.Hardware{}),
		"not its image alone": granted("", extraspecs.Hardware{Firmware: "uefi", Encryption: "amd-sev"}),
		"a context of sev-es": granted(domain.SEVES, extraspecs.Hardware{Firmware: "uefi", Encryption: "amd-sev"}),
		"machine type is pc-x": granted(domain.SEV,
			extraspecs.Hardware{Firmware: "uefi", Encryption: "amd-sev", Machine: "pc-x"}),
	})
	refuses("floating", map[string]func(*domain.Spec){"emulated": granted(domain.SEV,
		extraspecs.Hardware{Firmware: "uefi", Encryption: "amd-sev"})})
	refuses("floating", map[string]func(*domain.Spec){
		"hide the hypervisor":   asks(extraspecs.Hardware{HideHypervisor: true}),
		"performance monitor":   asks(extraspecs.Hardware{PMU: &on}),
		"IOMMU smmuv3":          asks(extraspecs.Hardware{IOMMU: "smmuv3"}),
		"machine type pc-i440":  asks(extraspecs.Hardware{IOMMU: "auto", Machine: "pc-i440fx-9.1"}),
		"5 serial ports":        asks(extraspecs.Hardware{SerialPorts: 5}),
		"needs the machine":     asks(extraspecs.Hardware{Firmware: "uefi", SecureBoot: "required", Machine: "pc"}),
		"UEFI is not supported": lacks(extraspecs.TraitUEFI, extraspecs.Hardware{Firmware: "uefi"}),
		"asks for secure boot": lacks(extraspecs.TraitSecureBoot,
			extraspecs.Hardware{Firmware: "uefi", SecureBoot: "required"}),
		"such a TPM": lacks(
			"COMPUTE_SECURITY_TPM_CRB", extraspecs.Hardware{TPMVersion: "2.0", TPMModel: "tpm-crb"}),
		"packed rings":        lacks("COMPUTE_NET_VIRTIO_PACKED", extraspecs.Hardware{PackedRing: true}),
		"such a disk bus":     lacks("COMPUTE_STORAGE_BUS_USB", extraspecs.Hardware{DiskBus: "usb"}),
		"such a video device": lacks("COMPUTE_GRAPHICS_MODEL_QXL", extraspecs.Hardware{VideoModel: "qxl"}),
	})
}

// TestHardwareFollowsHostTraits: where the host says what its guests can have, that is what they
// get if they may have it.
func TestHardwareFollowsHostTraits(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, c := range []struct {
		traits   map[string]bool
		hardware extraspecs.Hardware
		has, not string
	}{
		{map[string]bool{extraspecs.TraitSecureBoot: true},
			extraspecs.Hardware{Firmware: "uefi", SecureBoot: "optional"},
			`<feature enabled="yes" name="secure-boot">`, `enabled="no"`},
		{nil, extraspecs.Hardware{Firmware: "uefi", SecureBoot: "optional"},
			`<feature enabled="no" name="secure-boot">`, "<smm"},
		{map[string]bool{extraspecs.TraitSecureBoot: true},
			extraspecs.Hardware{Firmware: "uefi"}, `<feature enabled="no" name="secure-boot">`, "<smm"},
		{map[string]bool{"COMPUTE_VIOMMU_MODEL_VIRTIO": true}, extraspecs.Hardware{IOMMU: "auto"},
			`<iommu model="virtio">`, "<ioapic"},
		{map[string]bool{"COMPUTE_VIOMMU_MODEL_VIRTIO": false}, extraspecs.Hardware{IOMMU: "auto"},
			`<iommu model="intel">`, `"virtio-iommu"`},
	} {
		s := specs()["floating"]
		s.Traits, s.Hardware = c.traits, c.hardware
		text, err := domain.Write(s)
		if err != nil || !strings.Contains(string(text), c.has) || strings.Contains(string(text), c.not) {
			t.Errorf("%v, %+v: %v\n%s", c.traits, c.hardware, err, text)
		}
	}
}

// TestChangedDecisionIsIgnored: a domain whose placement an operator changed by hand is still the
// agent's, but its decision is ignored.
func TestChangedDecisionIsIgnored(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	text := testproc.Try(domain.Write(specs()["pinned"])).Or(t)
	d := testproc.Try(domain.Parse([]byte(strings.Replace(string(text), `cellid="1"`, `cellid="7"`, 1)))).Or(t)
	if _, known := d.Decision(); known || d.Mark == nil {
		t.Error(known, d.Mark)
	}
}

func BenchmarkParse(b *testing.B) {
	text := []byte(novaXML(4))
	b.ReportAllocs()
	for b.Loop() {
		testproc.Try(domain.Parse(text)).Or(b)
	}
}

func BenchmarkWrite(b *testing.B) {
	spec := specs()["pinned"]
	b.ReportAllocs()
	for b.Loop() {
		testproc.Try(domain.Write(spec)).Or(b)
	}
}
