// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/capabilities"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/plugins"
)

// The traits of a host: what its CPU is and can do, and what its hypervisor can give to guests. All
// names are of os-traits 3.9.0.
//
//	capabilities, cpuinfo ──▶ CPU features, architecture, threads ─┐
//	domain capabilities ────▶ disk buses, video, TPM, firmware, … ─┼─▶ Verdicts
//	versions ───────────────▶ models that came with them          ─┘
//	configuration ──────────▶ what nova-compute promises           ──▶ Capabilities
//	descriptions of mdevs ─────────────────────────────────────────▶ GPUTraits
//
// Verdicts are about the root's traits that the driver owns (OwnedHostTraits), Capabilities about
// those that the agent puts on the root, GPUTraits about the providers of GPUs.
//
// The traits are those that Nova's libvirt driver reports for the same host, so that a root that
// Nova wrote needs no change, and the scheduler sees the same host. Hence HW_CPU_X86_SSE3 follows
// the feature "sse3", a name that libvirt (which says "pni") never gives. Traits for facts that
// Nova does not report are left out unless the configuration asks for them.
//
// A verdict needs an answer: if libvirt was not asked or did not answer, a trait is neither added
// nor removed.

// HostTraits is what traits follow from.
type HostTraits struct {
	// Arch is libvirt's name of the host's architecture.
	Arch string
	// Features are libvirt's names of the features of the CPU that guests see, all of them.
	// FeaturesUnknown: libvirt does not report them.
	Features        []string
	FeaturesUnknown bool
	// Threaded: some core has more than one thread.
	Threaded bool
	// GuestArches are libvirt's names of the architectures that guests can have.
	GuestArches []string
	// Domains are what libvirt says that guests can have, one for each of the [capabilities.Kinds]
	// asked about. Empty if it does not report them: then the traits about their devices stay
	// unchanged.
	Domains []capabilities.Domain
	// Libvirt is the version of the daemon, QEMU that of the emulator, 0 if not known.
	Libvirt, QEMU Version
	// KernelAsked reports that it is known what the kernel can encrypt.
	KernelAsked bool
	Config      TraitConfig
}

// AskedArch chooses the architectures of guests whose domain capabilities matter: the host's own,
// and those that have a trait. (Nova asks about all that have an emulator. What the others can
// have, one of these can have, too.)
func AskedArch(host string) func(guest string) bool {
	return func(guest string) bool { return guest == host || emulated[guest] != "" }
}

// Verdicts returns for each trait that the driver owns on the root whether the host has it: true
// ones are added, false ones removed. A trait about which nothing is known is left out and stays
// unchanged.
//
// Cost: some 150 entries, a few microseconds; see BenchmarkVerdicts.
func (h HostTraits) Verdicts() map[string]bool {
	out := make(map[string]bool, len(OwnedHostTraits()))
	for family, list := range features {
		if h.FeaturesUnknown {
			break
		}
		has := map[string]bool{}
		if family == families[h.Arch] {
			has = machine.SetOf(h.Features)
		}
		for _, f := range list {
			for _, t := range f.traits {
				out[t] = has[f.libvirt]
			}
		}
	}
	for arch, t := range architectures {
		out[t] = arch == h.Arch
	}
	guestArches := machine.SetOf(h.GuestArches)
	for arch, t := range emulated {
		out[t] = guestArches[arch]
	}
	out[hyperthreading] = h.Threaded
	h.encryptionVerdicts(out)
	g := h.guests()
	for _, r := range rules {
		if v := r.evaluate(g); v != unknown {
			out[r.trait] = v == yes
		}
	}
	for _, r := range more {
		switch h.Config.More {
		case ReportTrait:
			if v := r.evaluate(g); v != unknown {
				out[r.trait] = v == yes
			}
		case RemoveTrait:
			out[r.trait] = false
		}
	}
	return out
}

// OwnedHostTraits are the traits that the driver owns on a root, sorted.
var OwnedHostTraits = sync.OnceValue(func() []string {
	traits := append([]string{hyperthreading}, sevTraits...)
	for _, family := range features {
		for _, f := range family {
			traits = append(traits, f.traits...)
		}
	}
	for _, table := range []map[string]string{architectures, emulated} {
		for _, t := range table {
			traits = append(traits, t)
		}
	}
	for _, list := range [][]rule{rules, more} {
		for _, r := range list {
			traits = append(traits, r.trait)
		}
	}
	slices.Sort(traits)
	return slices.Compact(traits)
})

// FeaturesOfFlags translates the flags of /proc/cpuinfo into libvirt's names of those features that
// have a trait.
func FeaturesOfFlags(arch string, flags []string) []string {
	has := machine.SetOf(flags)
	var names []string
	for _, f := range features[families[arch]] {
		if f.kernel != "" && has[f.kernel] {
			names = append(names, f.libvirt)
		}
	}
	return names
}

// CompareFeatures returns the features that only libvirt and that only the kernel reports, in
// libvirt's names, among those that have a trait and that both can name.
func CompareFeatures(arch string, libvirt, flags []string) (onlyLibvirt, onlyKernel []string) {
	hasLibvirt, hasKernel := machine.SetOf(libvirt), machine.SetOf(flags)
	for _, f := range features[families[arch]] {
		switch {
		case f.kernel == "" || hasLibvirt[f.libvirt] == hasKernel[f.kernel]:
		case hasLibvirt[f.libvirt]:
			onlyLibvirt = append(onlyLibvirt, f.libvirt)
		default:
			onlyKernel = append(onlyKernel, f.libvirt)
		}
	}
	return onlyLibvirt, onlyKernel
}

// Names of the configuration's keys.
const (
	CapabilitiesKey        = "compute_capabilities"
	CapabilityOverridesKey = "compute_capability_overrides"
	MoreTraitsKey          = "more_traits"
)

// TraitChoice is what to do about a group of traits.
type TraitChoice string

// The choices.
const (
	// KeepTrait leaves the root's traits unchanged. It is the default.
	KeepTrait TraitChoice = "keep"
	// ReportTrait adds those that the host has and removes the others.
	ReportTrait TraitChoice = "report"
	// RemoveTrait removes them.
	RemoveTrait TraitChoice = "remove"
)

// TraitConfig are the keys about traits in the driver's configuration.
type TraitConfig struct {
	// Service is about what the service that runs the guests promises, see
	// [HostTraits.Capabilities]: with "report" what Nova's libvirt driver promises; with "keep"
	// what stands, so that nothing changes for a scheduler where nova-compute still runs the
	// guests.
	Service TraitChoice `json:"compute_capabilities"`
	// Overrides take precedence for single traits: COMPUTE_IMAGE_TYPE_QCOW2 = false where nova.conf
	// says so.
	Overrides map[string]bool `json:"compute_capability_overrides"`
	// More is about facts of the host for which there are traits, but which Nova's driver does not
	// report: firmware, USB controllers.
	More TraitChoice `json:"more_traits"`
	// SWTPM lets guests have emulated TPMs, where libvirt can make them. It is Nova's option
	// [libvirt]swtpm_enabled.
	SWTPM bool `json:"swtpm_enabled"`

	GuestCPU
}

// Check finds what the types do not. The error is a [*plugins.ConfigError].
func (c TraitConfig) Check() error {
	all := c.wrongCPU()
	for _, choice := range []struct {
		key   string
		value TraitChoice
	}{{CapabilitiesKey, c.Service}, {MoreTraitsKey, c.More}} {
		switch choice.value {
		case "", KeepTrait, ReportTrait, RemoveTrait:
		default:
			all = append(all,
				&plugins.ConfigError{Key: choice.key,
					Problem: fmt.Sprintf("%.40q is not one of %q, %q and %q",
						choice.value, KeepTrait, ReportTrait, RemoveTrait)})
		}
	}
	for _, trait := range slices.Sorted(maps.Keys(c.Overrides)) {
		if !promised[trait] {
			all = append(
				all,
				&plugins.ConfigError{Key: CapabilityOverridesKey,
					Problem: fmt.Sprintf("%.80q is not a compute capability trait such as %s",
						trait, service[0].trait)},
			)
		}
	}
	return plugins.JoinConfig(all...)
}

// sevTraits are the traits of AMD's memory encryption. Older Novas set the first on the root; now
// there is a child of the root for each kind of encryption (package selection).
var sevTraits = []string{"HW_CPU_X86_AMD_SEV", "HW_CPU_X86_AMD_SEV_ES", "HW_CPU_X86_AMD_SEV_SNP"}

// encryptionVerdicts takes them off the root, once kernel and libvirt have said what there is: then
// the children are right.
func (h HostTraits) encryptionVerdicts(out map[string]bool) {
	if !h.guests().asked || !h.KernelAsked {
		return
	}
	for _, trait := range sevTraits {
		out[trait] = false
	}
}

// Discrepancies are where the configuration does not fit libvirt.
func (h HostTraits) Discrepancies() []machine.Discrepancy {
	g := h.guests()
	if !g.asked {
		return nil
	}
	var out []machine.Discrepancy
	if h.Config.SWTPM && !g.tpmBackends["emulator"] {
		out = append(
			out,
			machine.Discrepancyf("traits-swtpm",
				"swtpm_enabled is set, but libvirt says that it cannot emulate a TPM for %s guests; install swtpm, "+
					"or guests that need a TPM are not scheduled here", h.Arch),
		)
	}
	return out
}
