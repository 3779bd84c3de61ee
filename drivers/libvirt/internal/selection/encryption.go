// SPDX-License-Identifier: Apache-2.0

package selection

import (
	"fmt"
	"strings"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// Memory encryption: how many guests with encrypted memory a host can run, of which kind:
// MEM_ENCRYPTION_CONTEXT.
//
// An AMD processor has a key for each encrypted guest, under a number (ASID). Firmware splits the
// numbers in two pools, and kinds do not borrow:
//
//	pool                guests             libvirt's limit   provider
//	from min_sev_asid   SEV                maxGuests         <node>_amd_sev
//	below it            SEV-ES, SEV-SNP    maxESGuests       <node>_amd_sev_es, <node>_amd_sev_snp
//
// The names, the traits and the totals are Nova's (2025.2 and later), so that its tree needs no
// change. Before, Nova kept the contexts on the root.
//
// # One pool, two providers
//
// SEV-ES and SEV-SNP draw from the same pool, and Placement knows of no inventory that two
// providers share. If both stood in the tree with all of the pool each, it could be given away
// twice. Therefore contexts that guests of one kind hold are reserved on the provider of the other,
// by all domains that are defined, running or not: one that is shut off wants its context back.
// Which providers there are:
//
//   - A host with SEV-SNP has <node>_amd_sev_snp with the whole pool and, like Nova's, no
//     <node>_amd_sev_es. Nothing can be given away twice.
//   - If SEV-ES guests are on such a host nevertheless (it was given SEV-SNP later),
//     <node>_amd_sev_es stands for as long as they do: with the contexts that they hold, and all
//     others reserved.

// EncryptionClass is the resource class of the contexts.
const EncryptionClass = "MEM_ENCRYPTION_CONTEXT"

// EncryptionProvider is an inventory of contexts of one kind.
type EncryptionProvider struct {
	// Suffix is what follows the node's name: amd_sev, amd_sev_es, amd_sev_snp.
	Suffix string
	// Total is 1 or more. Reserved is never above it, and has what the other kind of the same pool
	// holds. MaxUnit is 1: a guest has one context.
	Total, Reserved, MaxUnit int64
	// Trait is the one that the provider has: HW_CPU_X86_AMD_SEV and so on. The root has none of
	// them.
	Trait string
	// Security is what the domains are launched with that hold contexts of this provider.
	Security domain.Security
}

// Name is the provider's name, which is Nova's.
func (p EncryptionProvider) Name(node string) string { return node + "_" + p.Suffix }

// kind is a kind of memory encryption.
type kind struct {
	EncryptionProvider
	// label is what people call it, module the parameter of kvm_amd.
	label, module string
}

func (k kind) discrepancy() string { return strings.ToLower(k.label) }
func (k kind) parameter() string   { return "/sys/module/kvm_amd/parameters/" + k.module }

// all are the kinds, in the order in which one builds on the other.
var all = []kind{
	{EncryptionProvider{Suffix: "amd_sev", Trait: "HW_CPU_X86_AMD_SEV", Security: domain.SEV}, "SEV", "sev"},
	{EncryptionProvider{Suffix: "amd_sev_es", Trait: "HW_CPU_X86_AMD_SEV_ES", Security: domain.SEVES}, "SEV-ES",
		"sev_es"},
	{EncryptionProvider{Suffix: "amd_sev_snp", Trait: "HW_CPU_X86_AMD_SEV_SNP", Security: domain.SEVSNP}, "SEV-SNP",
		"sev_snp"},
}

// Choose returns the providers of a host, the weakest kind first; those without contexts are left
// out. Inconsistencies are returned as discrepancies.
//
// SEV counts as in Nova: the least of the configured limit and libvirt's; if libvirt says nothing
// (before 8.0), the configured one, and without that as many as Placement can store. SEV-ES and
// SEV-SNP need libvirt's limit.
//
// Cost: O(domains).
func (l EncryptionLimit) Choose(
	h EncryptionHost, domains []domain.Domain,
) ([]EncryptionProvider, []machine.Discrepancy) {
	var d discrepancies
	held := map[domain.Security]int64{}
	for i := range domains {
		held[domains[i].Security]++
	}
	most := h.limits(&d)
	offered := h.kinds(most, &d)
	l.unusable(offered[domain.SEV], &d)
	var out []EncryptionProvider
	for _, k := range all {
		p := k.EncryptionProvider
		p.MaxUnit = 1
		switch {
		case !offered[p.Security]:
		case p.Security == domain.SEV:
			p.Total = l.total(most.guests, h.Kernel, &d)
		default:
			p.Total = *most.esGuests
			p.Reserved = reserved(p, offered, held)
		}
		if p.Total > 0 && (p.Security != domain.SEVES || hasOwnProvider(offered, held)) {
			out = append(out, p)
		} else if n := held[p.Security]; n > 0 {
			d.addf("sev-guests-"+k.discrepancy(),
				"%d domain(s) use %s, but no contexts are reported for it: the host cannot run them, or the "+
					"configuration allows none", n, k.label)
		}
	}
	if n := held[domain.SEVES] + held[domain.SEVSNP]; most.esGuests != nil && n > *most.esGuests &&
		(offered[domain.SEVES] || offered[domain.SEVSNP]) {
		d.addf("sev-es-shared",
			"%d SEV-ES and %d SEV-SNP domains share %d contexts: they cannot all run at once; move some to "+
				"another host",
			held[domain.SEVES], held[domain.SEVSNP], *most.esGuests)
	}
	return out, d
}

// hasOwnProvider reports whether SEV-ES has its own provider.
func hasOwnProvider(offered map[domain.Security]bool, held map[domain.Security]int64) bool {
	return !offered[domain.SEVSNP] || held[domain.SEVES] > 0
}

// reserved are the contexts of the common pool that a provider cannot give.
func reserved(p EncryptionProvider, offered map[domain.Security]bool, held map[domain.Security]int64) int64 {
	switch {
	case p.Security == domain.SEVSNP:
		return min(held[domain.SEVES], p.Total)
	case offered[domain.SEVSNP]:
		return p.Total - min(held[domain.SEVES], p.Total)
	}
	return min(held[domain.SEVSNP], p.Total)
}

// unusable adds a discrepancy about a limit for guests that cannot exist.
func (l EncryptionLimit) unusable(sev bool, d *discrepancies) {
	if l.set && l.guests > 0 && !sev {
		d.addf("sev-unusable", "%s is %d, but this host runs no guests with encrypted memory: nothing is reported",
			EncryptedGuestsKey, l.guests)
	}
}

// total are the contexts of the SEV provider.
func (l EncryptionLimit) total(most *int64, k *EncryptionByKernel, d *discrepancies) int64 {
	switch {
	case most != nil && l.set && l.guests > *most:
		d.addf("sev-limit", "%s is %d, but the host can run %d such guests: %d are reported",
			EncryptedGuestsKey, l.guests, *most, *most)
		return *most
	case l.set:
		if most == nil && k.Guests > 0 && l.guests > int64(k.Guests) {
			d.addf("sev-limit",
				"%s is %d, but the kernel can run %d such guests (/sys/fs/cgroup/misc.capacity): lower it, or "+
					"guests fail to start",
				EncryptedGuestsKey, l.guests, k.Guests)
		}
		return l.guests
	case most != nil:
		return *most
	}
	hint := "set " + EncryptedGuestsKey
	if k.Guests > 0 {
		hint += fmt.Sprintf(" = %d, the kernel's number", k.Guests)
	}
	d.addf("sev-unlimited",
		"libvirt does not report how many SEV guests can run (8.0 and later do): no limit is reported, and guests "+
			"above it fail to start; %s", hint)
	return providertree.MaxUnit
}

// EncryptedGuestsKey is the name of the configuration's key, which is Nova's.
const EncryptedGuestsKey = "num_memory_encrypted_guests"

// MemoryEncryptionConfig are the keys about encrypted memory in the driver's configuration.
type MemoryEncryptionConfig struct {
	// Guests bounds the SEV guests of the host (not SEV-ES and SEV-SNP guests, as in Nova); 0
	// allows none, and nil leaves it to the hardware.
	Guests *int64 `json:"num_memory_encrypted_guests"`
}

// EncryptionLimit is the parsed configuration. The zero value sets no limit.
type EncryptionLimit struct {
	guests int64
	set    bool
}

// ParseEncryption reads the configuration, as far as that is possible without a host. Errors are
// [*plugins.ConfigError].
func ParseEncryption(c MemoryEncryptionConfig) (EncryptionLimit, error) {
	if c.Guests == nil {
		return EncryptionLimit{}, nil
	}
	if *c.Guests < 0 || *c.Guests > providertree.MaxUnit {
		return EncryptionLimit{}, &plugins.ConfigError{
			Key: EncryptedGuestsKey,
			Problem: fmt.Sprintf("%d must be from 0 to %d; without the key the hardware's limit applies",
				*c.Guests, providertree.MaxUnit),
		}
	}
	return EncryptionLimit{guests: *c.Guests, set: true}, nil
}

// HeldEncryption are the current providers of a tree, for when it is unknown what the host has.
// inventory is the inventory of a provider by the end of its name; false if there is none.
func HeldEncryption(inventory func(suffix string) (providertree.Inventory, bool)) []EncryptionProvider {
	var out []EncryptionProvider
	for _, k := range all {
		if inv, has := inventory(k.Suffix); has {
			p := k.EncryptionProvider
			p.Total, p.Reserved, p.MaxUnit = inv.Total, inv.Reserved, inv.MaxUnit
			out = append(out, p)
		}
	}
	return out
}

// EncryptionHost is what is known of a host's memory encryption.
type EncryptionHost struct {
	Libvirt EncryptionByLibvirt
	// Kernel is nil where the kernel knows of no such thing: another processor, or kvm_amd is not
	// loaded.
	Kernel *EncryptionByKernel
}

// EncryptionByLibvirt is what libvirt reports.
type EncryptionByLibvirt struct {
	// SEV is <sev supported='yes'> in the domain capabilities; SNP, that <launchSecurity> there
	// lists sev-snp.
	SEV, SNP bool
	// Capabilities are the limits in the domain capabilities, Node those of virNodeGetSEVInfo. The
	// former come first.
	Capabilities, Node EncryptedGuests
}

// EncryptedGuests is how many guests can run at once; nil where libvirt does not say (before 8.0).
type EncryptedGuests struct {
	// Guests are SEV guests; ESGuests are SEV-ES and SEV-SNP guests together.
	Guests, ESGuests *uint
}

// EncryptionByKernel is what kvm_amd was allowed to do (its parameters sev, sev_es and sev_snp),
// and how many guests can run at once by the misc cgroup controller, 0 where it does not say. It
// has the fields of discovery.SEV and converts from it.
type EncryptionByKernel struct {
	SEV, ES, SNP     bool
	Guests, ESGuests int
}

// discrepancies collects.
type discrepancies []machine.Discrepancy

func (d *discrepancies) addf(key, format string, args ...any) {
	*d = append(*d, machine.Discrepancyf(key, format, args...))
}

// witnesses are the two reports about a kind.
type witnesses struct{ libvirt, kernel bool }

// limits are how many guests can be encrypted: with SEV, and with SEV-ES. nil: not known.
type limits struct{ guests, esGuests *int64 }

// kinds returns what both libvirt and the kernel offer.
func (h EncryptionHost) kinds(l limits, d *discrepancies) map[domain.Security]bool {
	var k EncryptionByKernel
	if h.Kernel != nil {
		k = *h.Kernel
	}
	es := h.Libvirt.SEV && l.esGuests != nil && *l.esGuests > 0
	witnessed := map[domain.Security]witnesses{
		domain.SEV:    {h.Libvirt.SEV, k.SEV},
		domain.SEVES:  {es, k.SEV && k.ES},
		domain.SEVSNP: {es && h.Libvirt.SNP, k.SEV && k.SNP},
	}
	offered := map[domain.Security]bool{}
	for _, kind := range all {
		w, sev := witnessed[kind.Security], kind.Security == domain.SEV
		offered[kind.Security] = w.libvirt && w.kernel && (sev || offered[domain.SEV])
		switch {
		case !sev && !offered[domain.SEV]: // said of SEV, or there is nothing to say
		case w.libvirt && !w.kernel:
			d.addf(kind.discrepancy(),
				"libvirt offers %s, but the kernel has not enabled it (%s): it is not reported. Load kvm_amd with "+
					"%s=1, or restart libvirtd so that it probes again", kind.label, kind.parameter(), kind.module)
		case w.kernel && !w.libvirt && l.esGuests == nil && !sev:
			d.addf(kind.discrepancy(),
				"the kernel has enabled %s (%s), but libvirt does not report how many such guests can run (8.0 and "+
					"later do): it is not reported",
				kind.label, kind.parameter())
		case w.kernel && !w.libvirt:
			d.addf(kind.discrepancy(),
				"the kernel has enabled %s (%s), but libvirt does not offer it: it is not reported. The firmware "+
					"may have no contexts for it, QEMU may be too old, or libvirt may have cached an earlier probe: "+
					"then remove its capabilities cache and restart it", kind.label, kind.parameter())
		}
	}
	return offered
}

// limits returns how many guests libvirt allows; if its two answers or the kernel's differ, it uses
// the domain capabilities, as in Nova.
func (h EncryptionHost) limits(d *discrepancies) limits {
	var k EncryptionByKernel
	if h.Kernel != nil {
		k = *h.Kernel
	}
	c, n := h.Libvirt.Capabilities, h.Libvirt.Node
	if !h.Libvirt.SEV {
		d = new(discrepancies) // nothing follows from these numbers
	}
	return limits{
		guests:   chooseLimit("sev-maximum", "SEV", c.Guests, n.Guests, k.Guests, d),
		esGuests: chooseLimit("sev-es-maximum", "SEV-ES and SEV-SNP", c.ESGuests, n.ESGuests, k.ESGuests, d),
	}
}

// chooseLimit is the number to use.
func chooseLimit(key, word string, capabilities, node *uint, kernel int, d *discrepancies) *int64 {
	first := capabilities
	if first == nil {
		first = node
	}
	if first == nil {
		return nil
	}
	counts := int64(min(*first, providertree.MaxUnit))
	var others []string
	if node != nil && *node != *first {
		others = append(others, fmt.Sprintf("%d in its node information", *node))
	}
	if kernel > 0 && uint(kernel) != *first {
		others = append(others, fmt.Sprintf("%d by the kernel (/sys/fs/cgroup/misc.capacity)", kernel))
	}
	if len(others) > 0 {
		d.addf(key, "libvirt reports that %d %s guests can run, but it is %s: %d is used, and if that is too many, "+
			"guests fail to start", *first, word, strings.Join(others, ", and "), counts)
	}
	return &counts
}
