// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/plugins"
)

// feature is one CPU feature: its name in libvirt's CPU map, its flag in /proc/cpuinfo, and what it
// means as traits.
type feature struct {
	libvirt, kernel string
	traits          []string
}

func oneTrait(libvirt, kernel, trait string) feature {
	return feature{libvirt: libvirt, kernel: kernel, traits: []string{trait}}
}

// features are by the family of architectures.
var features = map[string][]feature{
	"x86": {
		oneTrait("3dnow", "3dnow", "HW_CPU_X86_3DNOW"),
		oneTrait("abm", "abm", "HW_CPU_X86_ABM"),
		oneTrait("aes", "aes", "HW_CPU_X86_AESNI"),
		oneTrait("amx-bf16", "amx_bf16", "HW_CPU_X86_AMXBF16"),
		oneTrait("amx-int8", "amx_int8", "HW_CPU_X86_AMXINT8"),
		oneTrait("amx-tile", "amx_tile", "HW_CPU_X86_AMXTILE"),
		oneTrait("avx", "avx", "HW_CPU_X86_AVX"),
		oneTrait("avx2", "avx2", "HW_CPU_X86_AVX2"),
		oneTrait("avx512-vpopcntdq", "avx512_vpopcntdq", "HW_CPU_X86_AVX512VPOPCNTDQ"),
		oneTrait("avx512bitalg", "avx512_bitalg", "HW_CPU_X86_AVX512BITALG"),
		oneTrait("avx512bw", "avx512bw", "HW_CPU_X86_AVX512BW"),
		oneTrait("avx512cd", "avx512cd", "HW_CPU_X86_AVX512CD"),
		oneTrait("avx512dq", "avx512dq", "HW_CPU_X86_AVX512DQ"),
		oneTrait("avx512er", "avx512er", "HW_CPU_X86_AVX512ER"),
		oneTrait("avx512f", "avx512f", "HW_CPU_X86_AVX512F"),
		oneTrait("avx512ifma", "avx512ifma", "HW_CPU_X86_AVX512IFMA"),
		oneTrait("avx512pf", "avx512pf", "HW_CPU_X86_AVX512PF"),
		oneTrait("avx512vbmi", "avx512vbmi", "HW_CPU_X86_AVX512VBMI"),
		oneTrait("avx512vbmi2", "avx512_vbmi2", "HW_CPU_X86_AVX512VBMI2"),
		oneTrait("avx512vl", "avx512vl", "HW_CPU_X86_AVX512VL"),
		oneTrait("avx512vnni", "avx512_vnni", "HW_CPU_X86_AVX512VNNI"),
		oneTrait("bmi1", "bmi1", "HW_CPU_X86_BMI"),
		oneTrait("bmi2", "bmi2", "HW_CPU_X86_BMI2"),
		oneTrait("f16c", "f16c", "HW_CPU_X86_F16C"),
		oneTrait("fma", "fma", "HW_CPU_X86_FMA3"),
		oneTrait("fma4", "fma4", "HW_CPU_X86_FMA4"),
		oneTrait("gfni", "gfni", "HW_CPU_X86_AVX512GFNI"),
		oneTrait("mmx", "mmx", "HW_CPU_X86_MMX"),
		oneTrait("mpx", "mpx", "HW_CPU_X86_MPX"),
		oneTrait("pclmuldq", "pclmulqdq", "HW_CPU_X86_CLMUL"),
		oneTrait("sha-ni", "sha_ni", "HW_CPU_X86_SHA"),
		oneTrait("sse", "sse", "HW_CPU_X86_SSE"),
		oneTrait("sse2", "sse2", "HW_CPU_X86_SSE2"),
		oneTrait("sse3", "", "HW_CPU_X86_SSE3"),
		oneTrait("sse4.1", "sse4_1", "HW_CPU_X86_SSE41"),
		oneTrait("sse4.2", "sse4_2", "HW_CPU_X86_SSE42"),
		oneTrait("sse4a", "sse4a", "HW_CPU_X86_SSE4A"),
		oneTrait("ssse3", "ssse3", "HW_CPU_X86_SSSE3"),
		// Virtualisation has an older name without the vendor beside the one with it.
		{"svm", "svm", []string{"HW_CPU_X86_AMD_SVM", "HW_CPU_X86_SVM"}},
		oneTrait("tbm", "tbm", "HW_CPU_X86_TBM"),
		oneTrait("vaes", "vaes", "HW_CPU_X86_AVX512VAES"),
		{"vmx", "vmx", []string{"HW_CPU_X86_INTEL_VMX", "HW_CPU_X86_VMX"}},
		oneTrait("vpclmulqdq", "vpclmulqdq", "HW_CPU_X86_AVX512VPCLMULQDQ"),
		oneTrait("xop", "xop", "HW_CPU_X86_XOP"),
	},
	// libvirt lists what the kernel's hwcaps say, under their names.
	"aarch64": {
		oneTrait("aes", "aes", "HW_CPU_AARCH64_AES"),
		oneTrait("asimd", "asimd", "HW_CPU_AARCH64_ASIMD"),
		oneTrait("asimddp", "asimddp", "HW_CPU_AARCH64_ASIMDDP"),
		oneTrait("asimdhp", "asimdhp", "HW_CPU_AARCH64_ASIMDHP"),
		oneTrait("asimdrdm", "asimdrdm", "HW_CPU_AARCH64_ASIMDRDM"),
		oneTrait("atomics", "atomics", "HW_CPU_AARCH64_ATOMICS"),
		oneTrait("cpuid", "cpuid", "HW_CPU_AARCH64_CPUID"),
		oneTrait("crc32", "crc32", "HW_CPU_AARCH64_CRC32"),
		oneTrait("dcpop", "dcpop", "HW_CPU_AARCH64_DCPOP"),
		oneTrait("evtstrm", "evtstrm", "HW_CPU_AARCH64_EVTSTRM"),
		oneTrait("fcma", "fcma", "HW_CPU_AARCH64_FCMA"),
		oneTrait("fp", "fp", "HW_CPU_AARCH64_FP"),
		oneTrait("fphp", "fphp", "HW_CPU_AARCH64_FPHP"),
		oneTrait("jscvt", "jscvt", "HW_CPU_AARCH64_JSCVT"),
		oneTrait("lrcpc", "lrcpc", "HW_CPU_AARCH64_LRCPC"),
		oneTrait("pmull", "pmull", "HW_CPU_AARCH64_PMULL"),
		oneTrait("sha1", "sha1", "HW_CPU_AARCH64_SHA1"),
		oneTrait("sha2", "sha2", "HW_CPU_AARCH64_SHA2"),
		oneTrait("sha3", "sha3", "HW_CPU_AARCH64_SHA3"),
		oneTrait("sha512", "sha512", "HW_CPU_AARCH64_SHA512"),
		oneTrait("sm3", "sm3", "HW_CPU_AARCH64_SM3"),
		oneTrait("sm4", "sm4", "HW_CPU_AARCH64_SM4"),
		oneTrait("sve", "sve", "HW_CPU_AARCH64_SVE"),
	},
}

// families are libvirt's architecture names by family.
var families = map[string]string{"x86_64": "x86", "i686": "x86", "aarch64": "aarch64"}

// architectures are libvirt's names of host architectures that have a trait.
var architectures = map[string]string{
	"aarch64": "HW_ARCH_AARCH64", "alpha": "HW_ARCH_ALPHA", "armv6l": "HW_ARCH_ARMV6", "armv7b": "HW_ARCH_ARMV7B",
	"armv7l": "HW_ARCH_ARMV7", "i686": "HW_ARCH_I686", "ia64": "HW_ARCH_IA64", "m68k": "HW_ARCH_M68K",
	"mips": "HW_ARCH_MIPS", "mips64": "HW_ARCH_MIPS64", "mips64el": "HW_ARCH_MIPS64EL", "mipsel": "HW_ARCH_MIPSEL",
	"ppc": "HW_ARCH_PPC", "ppc64": "HW_ARCH_PPC64", "ppc64le": "HW_ARCH_PPC64LE", "s390": "HW_ARCH_S390",
	"s390x": "HW_ARCH_S390X", "sparc": "HW_ARCH_SPARC", "sparc64": "HW_ARCH_SPARC64", "x86_64": "HW_ARCH_X86_64",
}

// emulated are libvirt's names of guest architectures that have a trait.
var emulated = map[string]string{
	"aarch64": "COMPUTE_ARCH_AARCH64", "mipsel": "COMPUTE_ARCH_MIPSEL", "ppc64le": "COMPUTE_ARCH_PPC64LE",
	"riscv64": "COMPUTE_ARCH_RISCV64", "s390x": "COMPUTE_ARCH_S390X", "x86_64": "COMPUTE_ARCH_X86_64",
}

// hyperthreading means that some core has more than one thread, of any vendor's CPU.
const hyperthreading = "HW_CPU_HYPERTHREADING"

// ofCPUs returns the traits that are about CPUs. They belong on the providers of VCPU and PCPU.
func ofCPUs(traits []string) []string {
	return slices.DeleteFunc(slices.Clone(traits), func(t string) bool { return !strings.HasPrefix(t, "HW_CPU_") })
}

// Names of the keys about the processors that guests see.
const (
	CPUModeKey   = "cpu_mode"
	CPUModelsKey = "cpu_models"
	CPUFlagsKey  = "cpu_model_extra_flags"
)

// The values of cpu_mode.
const (
	CPUHostModel       = "host-model"
	CPUHostPassthrough = "host-passthrough"
	CPUCustom          = "custom"
	CPUNone            = "none"
)

// GuestCPU is the processor that guests see: Nova's options of these names. The traits of the
// node's CPU are those of this processor, since a guest cannot use what it does not see.
type GuestCPU struct {
	// Mode is one of the values of cpu_mode; "" is host-model (host-passthrough on aarch64): guests
	// see all features of the host.
	Mode string `json:"cpu_mode"`
	// Models are libvirt's names of the models that guests can have, for the mode custom.
	Models []string `json:"cpu_models"`
	// Flags are features that guests have besides (avx, +avx) or do not have (-avx).
	Flags []string `json:"cpu_model_extra_flags"`
}

var (
	cpuModel = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}$`)
	cpuFlag  = regexp.MustCompile(`^[+-]?[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}$`)
)

// wrongCPU finds what the types do not.
func (g GuestCPU) wrongCPU() (all []error) {
	bad := func(key, format string, args ...any) {
		all = append(all, &plugins.ConfigError{Key: key, Problem: fmt.Sprintf(format, args...)})
	}
	switch g.Mode {
	case "", CPUHostModel, CPUHostPassthrough, CPUCustom, CPUNone:
	default:
		bad(CPUModeKey, "%.40q is not one of %q, %q, %q and %q", g.Mode, CPUHostModel,
			CPUHostPassthrough, CPUCustom, CPUNone)
	}
	switch {
	case g.Mode == CPUCustom && len(g.Models) == 0:
		bad(CPUModelsKey, "is required with %s = %q", CPUModeKey, CPUCustom)
	case g.Mode != CPUCustom && len(g.Models) > 0:
		bad(CPUModelsKey, "is allowed only with %s = %q", CPUModeKey, CPUCustom)
	}
	for i, model := range g.Models {
		if !cpuModel.MatchString(model) {
			bad(fmt.Sprintf("%s[%d]", CPUModelsKey, i),
				"%.80q is not the name of a CPU model; `virsh cpu-models ARCH` lists them", model)
		}
	}
	for i, flag := range g.Flags {
		if !cpuFlag.MatchString(flag) {
			bad(fmt.Sprintf("%s[%d]", CPUFlagsKey, i),
				"%.80q is not a CPU feature with + or - before it, such as \"-avx2\"", flag)
		}
	}
	return all
}

// ModelsFor are libvirt's names of the models whose features guests have; none if they have the
// host's.
func (g GuestCPU) ModelsFor(arch string) []string {
	switch g.Mode {
	case CPUCustom:
		return g.Models
	case CPUNone:
		switch arch { // the models that an emulator chooses by itself, as in Nova
		case "i686":
			return []string{"qemu32"}
		case "ppc64le":
			return []string{"POWER8"}
		case "aarch64":
			return []string{"max"}
		}
		return []string{"qemu64"}
	}
	return nil
}

// Apply returns features with those that the extra flags add, and without those that they disable.
// The mode none takes no flags, as in Nova.
func (g GuestCPU) Apply(features []string) []string {
	if g.Mode == CPUNone || len(g.Flags) == 0 {
		return features
	}
	out := slices.Clone(features)
	for _, flag := range g.Flags {
		name := strings.ToLower(strings.TrimLeft(flag, "+-"))
		out = slices.DeleteFunc(out, func(f string) bool { return f == name })
		if !strings.HasPrefix(flag, "-") {
			out = append(out, name)
		}
	}
	return out
}
