// SPDX-License-Identifier: Apache-2.0

package hosttraits

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/providertree"
)

func TestTraitsOfHosts(t *testing.T) {
	for _, tc := range []struct {
		name string
		host Host
		want string
	}{
		{"features with and without traits", Host{Arch: "x86_64", Features: []string{"aes", "clwb", "sse4.1", "pclmuldq", "pni"}}, "HW_ARCH_X86_64 HW_CPU_X86_AESNI HW_CPU_X86_CLMUL HW_CPU_X86_SSE41"},
		{"Intel's virtualisation", Host{Arch: "x86_64", Features: []string{"vmx"}}, "HW_ARCH_X86_64 HW_CPU_X86_INTEL_VMX HW_CPU_X86_VMX"},
		{"AMD's virtualisation", Host{Arch: "x86_64", Features: []string{"svm"}}, "HW_ARCH_X86_64 HW_CPU_X86_AMD_SVM HW_CPU_X86_SVM"},
		{"the same word on another architecture", Host{Arch: "aarch64", Features: []string{"aes", "sse"}}, "HW_ARCH_AARCH64 HW_CPU_AARCH64_AES"},
		{"an architecture without features", Host{Arch: "s390x", Features: []string{"aes"}, GuestArches: []string{"s390x", "s390"}}, "COMPUTE_ARCH_S390X HW_ARCH_S390X"},
		{"an architecture without a trait", Host{Arch: "riscv64", GuestArches: []string{"riscv64"}}, "COMPUTE_ARCH_RISCV64"},
		{"guests of other architectures", Host{Arch: "x86_64", GuestArches: []string{"aarch64", "i686", "x86_64"}}, "COMPUTE_ARCH_AARCH64 COMPUTE_ARCH_X86_64 HW_ARCH_X86_64"},
		{"threads", Host{Arch: "ppc64le", Threaded: true}, "HW_ARCH_PPC64LE HW_CPU_HYPERTHREADING"},
		{"nothing known", Host{}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, strings.Join(tc.host.Traits(), " ")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// The names of os-traits 3.9.0 that the tables may use: a typing error would be refused by Placement.
const known = `
HW_ARCH: AARCH64 ALPHA ARMV6 ARMV7 ARMV7B I686 IA64 M68K MIPS MIPS64 MIPS64EL MIPSEL PPC PPC64 PPC64LE S390 S390X SPARC SPARC64 X86_64
COMPUTE_ARCH: AARCH64 MIPSEL PPC64LE RISCV64 S390X X86_64
HW_CPU: HYPERTHREADING
HW_CPU_AARCH64: AES ASIMD ASIMDDP ASIMDHP ASIMDRDM ATOMICS CPUID CRC32 DCPOP EVTSTRM FCMA FP FPHP JSCVT LRCPC PMULL SHA1 SHA2 SHA3 SHA512 SM3 SM4 SVE
HW_CPU_X86: 3DNOW ABM AESNI AMD_SVM AVX AVX2 AVX512BITALG AVX512BW AVX512CD AVX512DQ AVX512ER AVX512F AVX512GFNI AVX512IFMA AVX512PF AVX512VAES AVX512VBMI AVX512VBMI2 AVX512VL AVX512VNNI AVX512VPCLMULQDQ AVX512VPOPCNTDQ BMI BMI2 CLMUL F16C FMA3 FMA4 INTEL_VMX MMX MPX SHA SSE SSE2 SSE3 SSE41 SSE42 SSE4A SSSE3 SVM TBM VMX XOP
`

func TestOwnedAreStandardTraits(t *testing.T) {
	var want []string
	for line := range strings.Lines(strings.TrimSpace(known)) {
		prefix, names, _ := strings.Cut(line, ": ")
		for _, n := range strings.Fields(names) {
			want = append(want, prefix+"_"+n)
		}
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, Owned()); diff != "" {
		t.Error(diff)
	}
	for _, foreign := range []string{"COMPUTE_NODE", "OWNER_NOVA"} {
		if slices.Contains(Owned(), foreign) {
			t.Errorf("%s is the agent's", foreign)
		}
	}
	for _, trait := range Owned() {
		if err := providertree.ValidateTrait(trait); err != nil {
			t.Error(err)
		}
	}
}

func TestTraitsAreOwned(t *testing.T) {
	owned := set(Owned())
	var words, arches []string
	for _, family := range features {
		for _, f := range family {
			words = append(words, f.libvirt)
		}
	}
	for a := range architectures {
		arches = append(arches, a)
	}
	for a := range emulated {
		arches = append(arches, a)
	}
	slices.Sort(words)
	slices.Sort(arches)
	rapid.Check(t, func(t *rapid.T) {
		h := Host{
			Arch:        rapid.SampledFrom(arches).Draw(t, "arch"),
			Features:    rapid.SliceOf(rapid.SampledFrom(words)).Draw(t, "features"),
			GuestArches: rapid.SliceOf(rapid.SampledFrom(arches)).Draw(t, "guests"),
			Threaded:    rapid.Bool().Draw(t, "threaded"),
		}
		for _, trait := range h.Traits() {
			if !owned[trait] {
				t.Fatalf("%s is reported but not owned: it would never be removed", trait)
			}
		}
	})
}

func TestDisagreement(t *testing.T) {
	libvirt, kernel := Disagreement("x86_64", []string{"aes", "sse4.1", "vmx", "clwb", "sse3"}, []string{"aes", "sse4_1", "avx512_vnni", "nopl", "pni"})
	if diff := cmp.Diff([][]string{{"vmx"}, {"avx512vnni"}}, [][]string{libvirt, kernel}); diff != "" {
		t.Error(diff)
	}
	if got := FromKernel("x86_64", []string{"avx512_vnni", "sse4_2", "nopl"}); !slices.Equal(got, []string{"avx512vnni", "sse4.2"}) {
		t.Errorf("FromKernel: %v", got)
	}
}
