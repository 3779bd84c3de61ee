// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/capabilities"
	"github.com/compute-agent/compute-agent/internal/extraspecs"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// captured are the domain capabilities of libvirt 9.0 with QEMU 7.2 as an emulator, without UEFI
// firmware and swtpm.
func captured(t testing.TB) []capabilities.Domain {
	t.Helper()
	var out []capabilities.Domain
	for _, name := range []string{"pc", "q35"} {
		text := testproc.Try(os.ReadFile("../capabilities/testdata/qemu-7.2-" + name + ".xml")).Or(t)
		c := testproc.Try(capabilities.ParseDomain(string(text))).Or(t)
		out = append(out, c)
	}
	return out
}

const (
	libvirt9 Version = 9000000
	qemu7    Version = 7002000
)

// real is the machine that the capabilities were captured on.
func real(t testing.TB) HostTraits {
	return HostTraits{
		Arch: "x86_64", Features: []string{"sse", "sse2", "svm"}, GuestArches: []string{"i686", "x86_64"},
		Domains: captured(t), Libvirt: libvirt9, QEMU: qemu7, KernelAsked: true,
	}
}

// short writes names in groups: what the traits of a group begin with, and how they go on.
func short(traits []string) string {
	var b strings.Builder
	last := ""
	for _, t := range traits {
		group, name := "", t
		for _, prefix := range []string{"COMPUTE_ADDRESS_SPACE", "COMPUTE_FIRMWARE", "COMPUTE_GRAPHICS_MODEL",
			"COMPUTE_NET_VIF_MODEL", "COMPUTE_SECURITY",
			"COMPUTE_SOUND_MODEL", "COMPUTE_STORAGE_BUS", "COMPUTE_USB_MODEL", "COMPUTE_VIOMMU_MODEL", "HW_CPU_X86"} {
			if rest, ok := strings.CutPrefix(t, prefix+"_"); ok {
				group, name = prefix, rest
			}
		}
		if group != last || group == "" {
			b.WriteString("\n" + group)
		}
		if group != "" {
			b.WriteString(" ")
		}
		b.WriteString(name)
		last = group
	}
	return strings.TrimPrefix(b.String(), "\n") + "\n"
}

func TestTraitsOfAMachineWithQEMU(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const want = `COMPUTE_ADDRESS_SPACE EMULATED PASSTHROUGH
COMPUTE_ARCH_X86_64
COMPUTE_GRAPHICS_MODEL BOCHS CIRRUS NONE QXL VGA VIRTIO VMVGA
COMPUTE_NET_VIF_MODEL E1000 E1000E LAN9118 NE2K_PCI PCNET RTL8139 SPAPR_VLAN VIRTIO VMXNET3
COMPUTE_NET_VIRTIO_PACKED
COMPUTE_SECURITY STATELESS_FIRMWARE
COMPUTE_SOUND_MODEL AC97 ES1370 ICH6 ICH9 PCSPK SB16 USB
COMPUTE_STORAGE_BUS FDC IDE SATA SCSI USB VIRTIO
COMPUTE_VIOMMU_MODEL AUTO INTEL VIRTIO
HW_ARCH_X86_64
HW_CPU_X86 AMD_SVM SSE SSE2 SVM
`
	testproc.Same(t, cmp.Diff(want, short(traitsOf(real(t)))))
}

// TestTraitsAreWhatNovaReports: what nova-compute (of early 2025) had on the root of a host with
// KVM, firmware with secure boot and an older libvirt, which it logged. COMPUTE_NODE, which is not
// here, is the agent's. The log does not name the versions; those below are the ones that its
// traits fit.
func TestTraitsAreWhatNovaReports(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const nova = `COMPUTE_IMAGE_TYPE_AMI COMPUTE_GRAPHICS_MODEL_CIRRUS COMPUTE_NET_VIF_MODEL_E1000 COMPUTE_VOLUME_ATTACH_WITH_TAG COMPUTE_DEVICE_TAGGING
HW_CPU_X86_MMX COMPUTE_SECURITY_UEFI_SECURE_BOOT COMPUTE_VOLUME_MULTI_ATTACH COMPUTE_NET_VIF_MODEL_SPAPR_VLAN HW_CPU_X86_SSE COMPUTE_NET_VIF_MODEL_RTL8139
COMPUTE_IMAGE_TYPE_ISO HW_CPU_X86_SSSE3 COMPUTE_SOUND_MODEL_ICH6 COMPUTE_NET_VIF_MODEL_E1000E COMPUTE_VIOMMU_MODEL_INTEL COMPUTE_STORAGE_BUS_USB
COMPUTE_IMAGE_TYPE_AKI COMPUTE_ARCH_X86_64 COMPUTE_SOUND_MODEL_ICH9 COMPUTE_ACCELERATORS COMPUTE_SOUND_MODEL_PCSPK COMPUTE_SOUND_MODEL_SB16
COMPUTE_NET_VIF_MODEL_VIRTIO COMPUTE_STORAGE_VIRTIO_FS COMPUTE_STORAGE_BUS_IDE COMPUTE_SOUND_MODEL_USB COMPUTE_GRAPHICS_MODEL_BOCHS COMPUTE_RESCUE_BFV
COMPUTE_GRAPHICS_MODEL_VIRTIO COMPUTE_NET_VIRTIO_PACKED COMPUTE_NET_ATTACH_INTERFACE_WITH_TAG COMPUTE_NET_VIF_MODEL_PCNET COMPUTE_NET_VIF_MODEL_NE2K_PCI
HW_CPU_X86_SSE2 COMPUTE_SOUND_MODEL_AC97 COMPUTE_VIOMMU_MODEL_AUTO HW_ARCH_X86_64 COMPUTE_GRAPHICS_MODEL_QXL COMPUTE_GRAPHICS_MODEL_NONE
COMPUTE_NET_ATTACH_INTERFACE COMPUTE_SOCKET_PCI_NUMA_AFFINITY COMPUTE_GRAPHICS_MODEL_VGA HW_CPU_X86_SSE41 COMPUTE_STORAGE_BUS_SCSI COMPUTE_VOLUME_EXTEND
COMPUTE_GRAPHICS_MODEL_VMVGA COMPUTE_TRUSTED_CERTS COMPUTE_STORAGE_BUS_SATA COMPUTE_STORAGE_BUS_VIRTIO COMPUTE_NET_VIF_MODEL_VMXNET3 COMPUTE_STORAGE_BUS_FDC
COMPUTE_IMAGE_TYPE_RAW COMPUTE_IMAGE_TYPE_ARI HW_CPU_X86_SSE42 COMPUTE_IMAGE_TYPE_QCOW2 COMPUTE_SOUND_MODEL_ES1370`
	h := real(t)
	h.Features = []string{"mmx", "sse", "sse2", "ssse3", "sse4.1", "sse4.2"}
	h.Libvirt, h.QEMU = 7006000, 6000000
	for i := range h.Domains {
		h.Domains[i].Type = "kvm"
		h.Domains[i].Loader.Secure = true
	}
	h.Config.Service = ReportTrait
	got := traitsOf(h)
	for t, has := range h.Capabilities() {
		if has {
			got = append(got, t)
		}
	}
	want := strings.Fields(nova)
	slices.Sort(want)
	slices.Sort(got)
	testproc.Same(t, cmp.Diff(want, got))
}

// changed says what a change of the real host does to its verdicts: "+X" has it now, "-X" not any
// more, "?X" is not known any more.
func changed(t *testing.T, change func(*HostTraits)) string {
	t.Helper()
	before, h := real(t).Verdicts(), real(t)
	change(&h)
	after := h.Verdicts()
	var out []string
	for _, trait := range OwnedHostTraits() {
		was, is := before[trait], after[trait]
		_, named := after[trait]
		switch {
		case was && !named:
			out = append(out, "?"+trait)
		case was && !is:
			out = append(out, "-"+trait)
		case !was && is:
			out = append(out, "+"+trait)
		}
	}
	return strings.ReplaceAll(strings.Join(out, " "), "COMPUTE_", "")
}

// native changes the domains.
func native(change func(*capabilities.Domain)) func(*HostTraits) {
	return func(h *HostTraits) {
		for i := range h.Domains {
			change(&h.Domains[i])
		}
	}
}

func withTPM(versions ...string) func(*HostTraits) {
	return native(func(c *capabilities.Domain) {
		c.TPM.Backends, c.TPM.Versions = []string{"emulator", "passthrough"}, versions
	})
}

func TestTraitVerdicts(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, tc := range map[string]struct {
		change func(*HostTraits)
		want   string
	}{
		"nothing": {func(*HostTraits) {}, ""},
		"KVM": {native(func(c *capabilities.Domain) { c.Type = "kvm" }),
			"-NET_VIF_MODEL_LAN9118"},
		"one machine type alone lacks a bus": {func(h *HostTraits) { h.Domains = h.Domains[1:] }, "-STORAGE_BUS_IDE"},
		"buses and models that there are no traits for": {native(func(c *capabilities.Domain) {
			c.DiskBuses, c.VideoModels = append(c.DiskBuses, "sd", "VIRTIO "), append(c.VideoModels, "ramfb", "vbox")
		}), ""},
		"newer versions": {func(h *HostTraits) { h.Libvirt, h.QEMU = 11000000, 9001002 },
			"+NET_VIF_MODEL_IGB +SOUND_MODEL_VIRTIO"},
		"only libvirt is new": {func(h *HostTraits) { h.Libvirt = 11000000 }, ""},
		"exactly 8.7 and 2.7": {func(h *HostTraits) { h.Libvirt, h.QEMU = 8007000, 4002000 }, ""},
		"just older than 8.6": {func(h *HostTraits) { h.Libvirt = 8005999 },
			"-ADDRESS_SPACE_EMULATED -ADDRESS_SPACE_PASSTHROUGH -SECURITY_STATELESS_FIRMWARE"},
		"QEMU is very old": {func(h *HostTraits) { h.QEMU = 2006000 },
			"-ADDRESS_SPACE_EMULATED -ADDRESS_SPACE_PASSTHROUGH -NET_VIRTIO_PACKED"},
		"QEMU is not known": {func(h *HostTraits) { h.QEMU = 0 },
			"?ADDRESS_SPACE_EMULATED ?ADDRESS_SPACE_PASSTHROUGH ?NET_VIRTIO_PACKED"},
		"libvirt is not known": {func(h *HostTraits) { h.Libvirt = 0 },
			"?ADDRESS_SPACE_EMULATED ?ADDRESS_SPACE_PASSTHROUGH ?NET_VIRTIO_PACKED ?SECURITY_STATELESS_FIRMWARE " +
				"?VIOMMU_MODEL_VIRTIO"},
		"swtpm, not enabled": {withTPM("1.2", "2.0"), ""},
		"swtpm, enabled": {func(h *HostTraits) { withTPM("1.2", "2.0")(h); h.Config.SWTPM = true },
			"+SECURITY_TPM_1_2 +SECURITY_TPM_2_0 +SECURITY_TPM_CRB +SECURITY_TPM_TIS"},
		"swtpm, enabled, libvirt before 8.6": {func(h *HostTraits) { withTPM()(h); h.Config.SWTPM = true },
			"+SECURITY_TPM_1_2 +SECURITY_TPM_2_0 +SECURITY_TPM_CRB +SECURITY_TPM_TIS"},
		"swtpm without TPM 1.2": {func(h *HostTraits) { withTPM("2.0")(h); h.Config.SWTPM = true },
			"+SECURITY_TPM_2_0 +SECURITY_TPM_CRB +SECURITY_TPM_TIS"},
		"swtpm enabled, not installed": {func(h *HostTraits) { h.Config.SWTPM = true }, ""},
		"secure boot": {native(func(c *capabilities.Domain) { c.Loader.Secure = true }),
			"+SECURITY_UEFI_SECURE_BOOT"},
		"secure boot of another architecture": {func(h *HostTraits) {
			h.Domains = append(h.Domains,
				capabilities.Domain{Type: "qemu", Arch: "aarch64", Loader: capabilities.Loader{Secure: true}})
		}, "+VIOMMU_MODEL_SMMUV3"},
		"more: a BIOS": {func(h *HostTraits) { h.Config.More = ReportTrait },
			"+FIRMWARE_BIOS +USB_MODEL_NEC_XHCI +USB_MODEL_QEMU_XHCI"},
		"more: firmware by files": {func(h *HostTraits) {
			h.Config.More = ReportTrait
			h.Domains[0].Loader.Files =
				true
		}, "+FIRMWARE_BIOS +FIRMWARE_UEFI +USB_MODEL_NEC_XHCI +USB_MODEL_QEMU_XHCI"},
		"more: firmware that libvirt finds": {func(h *HostTraits) {
			h.Config.More =
				ReportTrait
			h.Domains[1].Loader.Firmware = []string{"efi"}
		},
			"+FIRMWARE_BIOS +FIRMWARE_UEFI +USB_MODEL_NEC_XHCI +USB_MODEL_QEMU_XHCI"},
		"a host of ARM": {func(h *HostTraits) {
			h.Arch, h.Features, h.GuestArches = "aarch64", []string{"asimd"}, []string{"aarch64"}
			h.Domains = []capabilities.Domain{{
				Type: "kvm", Arch: "aarch64", DiskBuses: []string{"fdc", "scsi", "virtio", "usb", "sata"},
				VideoModels: []string{"virtio", "none"},
				Loader:      capabilities.Loader{Types: []string{"rom", "pflash"}},
			}}
		}, "+ARCH_AARCH64 -ARCH_X86_64 -GRAPHICS_MODEL_BOCHS -GRAPHICS_MODEL_CIRRUS -GRAPHICS_MODEL_QXL " +
			"-GRAPHICS_MODEL_VGA -GRAPHICS_MODEL_VMVGA -NET_VIF_MODEL_LAN9118 -STORAGE_BUS_IDE -VIOMMU_MODEL_INTEL " +
			"+VIOMMU_MODEL_SMMUV3 +HW_ARCH_AARCH64 -HW_ARCH_X86_64 +HW_CPU_AARCH64_ASIMD -HW_CPU_X86_AMD_SVM " +
			"-HW_CPU_X86_SSE -HW_CPU_X86_SSE2 -HW_CPU_X86_SVM"},
	} {
		t.Run(name, func(t *testing.T) {
			testproc.Same(t, cmp.Diff(tc.want, changed(t, tc.change)))
		})
	}
}

func TestAsked(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	var got []string
	for _, arch := range []string{"x86_64", "i686", "aarch64", "armv7l", "riscv64", "sparc", ""} {
		if AskedArch("armv7l")(arch) {
			got = append(got, arch)
		}
	}
	testproc.Same(t, cmp.Diff([]string{"x86_64", "aarch64", "armv7l", "riscv64"}, got))
}

func TestAnArmHasNoBIOS(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := HostTraits{Arch: "aarch64", Config: TraitConfig{More: ReportTrait},
		Domains: []capabilities.Domain{{Type: "kvm",
			Arch: "aarch64", Loader: capabilities.Loader{Types: []string{"rom", "pflash"}}}}}
	if has, named := h.Verdicts()["COMPUTE_FIRMWARE_BIOS"]; has || !named {
		t.Errorf("has %v, named %v", has, named)
	}
}

// TestUnknownFactsRemoveNoTraits: where libvirt gives no domain capabilities (its test driver, a
// call that failed), what Nova wrote about devices stays.
func TestUnknownFactsRemoveNoTraits(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := real(t)
	h.Domains, h.KernelAsked = nil, false
	h.Config.SWTPM = true
	for trait := range h.Verdicts() {
		if strings.HasPrefix(trait, "COMPUTE_") && !strings.HasPrefix(trait, "COMPUTE_ARCH_") ||
			strings.Contains(trait, "SEV") {
			t.Errorf("a verdict about %s", trait)
		}
	}
	if discrepancies := h.Discrepancies(); discrepancies != nil {
		t.Errorf("%v", discrepancies)
	}
	h = real(t)
	for i := range h.Domains {
		h.Domains[i].Type = "xen" // of which only what libvirt lists is known
	}
	for trait := range h.Verdicts() {
		if strings.Contains(trait, "_VIF_") || strings.Contains(trait, "_SOUND_") ||
			strings.Contains(trait, "_VIOMMU_") {
			t.Errorf("a verdict about %s", trait)
		}
	}
}

func words(table ...string) *rapid.Generator[[]string] {
	return rapid.SliceOf(rapid.SampledFrom(table))
}

// anyHost draws hosts from the words that matter and some that do not.
func anyHost() *rapid.Generator[HostTraits] {
	arches := slices.Sorted(maps.Keys(architectures))
	arches = append(arches, "riscv64", "what")
	var featureWords []string
	for _, family := range features {
		for _, f := range family {
			featureWords = append(featureWords, f.libvirt)
		}
	}
	slices.Sort(featureWords)
	version := rapid.SampledFrom([]Version{0, 2006000, 6003000, 8006000, 9000000, 12000000})
	choice := rapid.SampledFrom([]TraitChoice{"", KeepTrait, ReportTrait, RemoveTrait})
	domain := rapid.Custom(func(t *rapid.T) capabilities.Domain {
		return capabilities.Domain{
			Type:        rapid.SampledFrom([]string{"kvm", "qemu", "xen"}).Draw(t, "type"),
			Arch:        rapid.SampledFrom(arches).Draw(t, "arch"),
			DiskBuses:   words("fdc", "virtio", "lxc", "sd").Draw(t, "buses"),
			VideoModels: words("none", "gop", "ramfb").Draw(t, "videos"),
			Filesystems: words("virtiofs", "path").Draw(t, "filesystems"),
			Security:    words("sev", "sev-snp", "tdx").Draw(t, "security"),
			Loader: capabilities.Loader{
				Types: words("rom", "pflash").Draw(t, "loaders"), Firmware: words("bios", "efi").Draw(t, "firmware"),
				Files: rapid.Bool().Draw(t, "files"), Secure: rapid.Bool().Draw(t, "secure"),
			},
			TPM: capabilities.TPM{
				Models:   words("tpm-tis", "tpm-crb", "spapr").Draw(t, "models"),
				Backends: words("emulator", "external").Draw(t, "backends"),
				Versions: words("1.2", "2.0").Draw(t, "versions"),
			},
			SEV: capabilities.SEV{Supported: rapid.Bool().Draw(t, "sev"),
				MaxESGuests: rapid.IntRange(0, 2).Draw(t, "guests")},
		}
	})
	return rapid.Custom(func(t *rapid.T) HostTraits {
		return HostTraits{
			Arch: rapid.SampledFrom(arches).Draw(t, "arch"), Features: words(featureWords...).Draw(t, "features"),
			Threaded: rapid.Bool().Draw(t, "threaded"), GuestArches: words(arches...).Draw(t, "guests"),
			Domains: rapid.SliceOfN(domain, 0, 4).Draw(t, "domains"),
			Libvirt: version.Draw(t, "libvirt"), QEMU: version.Draw(t, "qemu"),
			KernelAsked: rapid.Bool().Draw(t, "kernel"),
			Config: TraitConfig{Service: choice.Draw(t, "service"), More: choice.Draw(t, "more"),
				SWTPM: rapid.Bool().Draw(t, "swtpm")},
		}
	})
}

// TestEveryTraitIsRealAndOwned: every trait that leaves here is a real one, and the driver's: else
// Placement would refuse it, or it would never go.
func TestEveryTraitIsRealAndOwned(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rapid.Check(t, func(t *rapid.T) {
		h := anyHost().Draw(t, "host")
		verdicts := h.Verdicts()
		for trait := range verdicts {
			if !owns(trait) || !extraspecs.StandardTrait(trait) {
				t.Fatalf("%s: owned %v, standard %v", trait, owns(trait), extraspecs.StandardTrait(trait))
			}
		}
		for trait := range h.Capabilities() {
			if owns(trait) || !promised[trait] {
				t.Fatalf("%s: owned %v, promised %v", trait, owns(trait), promised[trait])
			}
		}
	})
}

// TestMoreDomainsNeverTakeATraitAway: what libvirt adds never takes a trait away.
func TestMoreDomainsNeverTakeATraitAway(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rapid.Check(t, func(t *rapid.T) {
		h := anyHost().Filter(func(h HostTraits) bool { return len(h.Domains) > 0 }).Draw(t, "host")
		for i := range h.Domains {
			h.Domains[i].TPM.Versions = []string{"2.0"} // silence there means both versions
		}
		all := traitsOf(h)
		h.Domains = h.Domains[1:]
		for _, trait := range traitsOf(h) {
			if !slices.Contains(all, trait) {
				t.Fatalf("%s is there without %v", trait, h.Domains)
			}
		}
	})
}

func BenchmarkVerdicts(b *testing.B) {
	h := real(b)
	b.ReportAllocs()
	for b.Loop() {
		h.Verdicts()
	}
}
