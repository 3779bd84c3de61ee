// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/internal/extraspecs"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// traitsOf are those that a host has, sorted.
func traitsOf(h HostTraits) []string {
	verdicts := h.Verdicts()
	return slices.DeleteFunc(slices.Sorted(maps.Keys(verdicts)), func(trait string) bool { return !verdicts[trait] })
}

// owns reports whether a trait is the driver's.
func owns(trait string) bool { return slices.Contains(OwnedHostTraits(), trait) }

func TestTraitsOfHosts(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, tc := range []struct {
		name string
		host HostTraits
		want string
	}{
		{"features with and without traits",
			HostTraits{Arch: "x86_64", Features: []string{"aes", "clwb", "sse4.1", "pclmuldq", "pni"}},
			"HW_ARCH_X86_64 HW_CPU_X86_AESNI HW_CPU_X86_CLMUL HW_CPU_X86_SSE41"},
		{"Intel's virtualisation", HostTraits{Arch: "x86_64", Features: []string{"vmx"}},
			"HW_ARCH_X86_64 HW_CPU_X86_INTEL_VMX HW_CPU_X86_VMX"},
		{"AMD's virtualisation", HostTraits{Arch: "x86_64", Features: []string{"svm"}},
			"HW_ARCH_X86_64 HW_CPU_X86_AMD_SVM HW_CPU_X86_SVM"},
		{"the same word on another architecture", HostTraits{Arch: "aarch64", Features: []string{"aes", "sse"}},
			"HW_ARCH_AARCH64 HW_CPU_AARCH64_AES"},
		{"an architecture without features",
			HostTraits{Arch: "s390x", Features: []string{"aes"}, GuestArches: []string{"s390x", "s390"}},
			"COMPUTE_ARCH_S390X HW_ARCH_S390X"},
		{"an architecture without a trait",
			HostTraits{Arch: "riscv64", GuestArches: []string{"riscv64"}}, "COMPUTE_ARCH_RISCV64"},
		{"guests of other architectures",
			HostTraits{Arch: "x86_64", GuestArches: []string{"aarch64", "i686", "x86_64"}},
			"COMPUTE_ARCH_AARCH64 COMPUTE_ARCH_X86_64 HW_ARCH_X86_64"},
		{"threads", HostTraits{Arch: "ppc64le", Threaded: true}, "HW_ARCH_PPC64LE HW_CPU_HYPERTHREADING"},
		{"nothing known", HostTraits{}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			testproc.Same(t, cmp.Diff(tc.want, strings.Join(traitsOf(tc.host), " ")))
		})
	}
}

func TestOwnedAreStandardTraits(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, trait := range slices.Concat(OwnedHostTraits(), OwnedGPUTraits(), slices.Collect(maps.Keys(promised))) {
		if !extraspecs.StandardTrait(trait) {
			t.Errorf("os-traits has no %s: Placement would refuse it", trait)
		}
	}
	for _, trait := range OwnedHostTraits() {
		if promised[trait] {
			t.Errorf("%s is the driver's and the agent's", trait)
		}
	}
	for _, list := range [][]string{OwnedHostTraits(), OwnedGPUTraits()} {
		if !slices.IsSorted(list) || len(slices.Compact(slices.Clone(list))) != len(list) {
			t.Errorf("not in order, or not each once: %q", list)
		}
	}
}

func TestUnmanagedTraitsAreNotOwned(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, foreign := range []string{
		// the agent's and Nova's marks
		"COMPUTE_NODE", "OWNER_NOVA", "COMPUTE_STATUS_DISABLED", "COMPUTE_MANAGED_PCI_DEVICE",
		"COMPUTE_NET_ATTACH_INTERFACE", "COMPUTE_VOLUME_MULTI_ATTACH", // promises of who runs the guests
		"HW_NUMA_ROOT", "HW_GPU_MAX_DISPLAY_HEADS_1",
		"STORAGE_DISK_SSD", "HW_NIC_SRIOV", "MISC_SHARES_VIA_AGGREGATE", "CUSTOM_GOLD", "",
	} {
		if owns(foreign) {
			t.Errorf("%s is not the driver's", foreign)
		}
	}
}

func TestDisagreement(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	libvirt, kernel := CompareFeatures("x86_64", []string{"aes", "sse4.1", "vmx", "clwb", "sse3"},
		[]string{"aes", "sse4_1", "avx512_vnni", "nopl", "pni"})
	testproc.Same(t, cmp.Diff([][]string{{"vmx"}, {"avx512vnni"}}, [][]string{libvirt, kernel}))
	if got := FeaturesOfFlags("x86_64", []string{"avx512_vnni", "sse4_2", "nopl"}); !slices.Equal(got,
		[]string{"avx512vnni", "sse4.2"}) {
		t.Errorf("FromKernel: %v", got)
	}
}
