// SPDX-License-Identifier: Apache-2.0

package encryption

import (
	"fmt"
	"strings"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/providertree"
)

// Class is the resource class of the contexts.
const Class = "MEM_ENCRYPTION_CONTEXT"

// Provider is an inventory of contexts of one kind.
type Provider struct {
	// Suffix is what follows the node's name: amd_sev, amd_sev_es, amd_sev_snp.
	Suffix string
	// Total is 1 or more. Reserved is never above it, and has what the other kind of the same pool holds. MaxUnit is 1: a guest has one context.
	Total, Reserved, MaxUnit int64
	// Trait is the one that the provider has: HW_CPU_X86_AMD_SEV and so on. The root has none of them.
	Trait string
	// Security is what the domains are launched with that hold contexts of this provider.
	Security domain.Security
}

// Name is the provider's name, which is Nova's.
func (p Provider) Name(node string) string { return node + "_" + p.Suffix }

// kind is a kind of memory encryption.
type kind struct {
	Provider
	// word is what people call it, module the parameter of kvm_amd.
	word, module string
}

func (k kind) doubt() string     { return strings.ToLower(k.word) }
func (k kind) parameter() string { return "/sys/module/kvm_amd/parameters/" + k.module }

// all are the kinds, in the order in which one builds on the other.
var all = []kind{
	{Provider{Suffix: "amd_sev", Trait: "HW_CPU_X86_AMD_SEV", Security: domain.SEV}, "SEV", "sev"},
	{Provider{Suffix: "amd_sev_es", Trait: "HW_CPU_X86_AMD_SEV_ES", Security: domain.SEVES}, "SEV-ES", "sev_es"},
	{Provider{Suffix: "amd_sev_snp", Trait: "HW_CPU_X86_AMD_SEV_SNP", Security: domain.SEVSNP}, "SEV-SNP", "sev_snp"},
}

// Choose says which providers a host has, the weakest kind first; those without contexts are left out. What does not fit together comes as
// doubts.
//
// SEV counts as in Nova: the least of the configured limit and libvirt's; if libvirt says nothing (before 8.0), the configured one, and
// without that as many as Placement can store. SEV-ES and SEV-SNP need libvirt's limit.
//
// Cost: O(domains).
func (l Limit) Choose(h Host, domains []domain.Domain) ([]Provider, []machine.Doubt) {
	var d doubts
	held := map[domain.Security]int64{}
	for i := range domains {
		held[domains[i].Security]++
	}
	most := h.limits(&d)
	offered := h.kinds(most, &d)
	l.unusable(offered[domain.SEV], &d)
	var out []Provider
	for _, k := range all {
		p := k.Provider
		p.MaxUnit = 1
		switch {
		case !offered[p.Security]:
		case p.Security == domain.SEV:
			p.Total = l.total(most.guests, h.Kernel, &d)
		default:
			p.Total = *most.esGuests
			p.Reserved = reserved(p, offered, held)
		}
		if p.Total > 0 && (p.Security != domain.SEVES || stands(offered, held)) {
			out = append(out, p)
		} else if n := held[p.Security]; n > 0 {
			d.addf("sev-guests-"+k.doubt(), "%d domain(s) are launched with %s, of which no contexts are reported: the host cannot run them, or the configuration allows none", n, k.word)
		}
	}
	if n := held[domain.SEVES] + held[domain.SEVSNP]; most.esGuests != nil && n > *most.esGuests && (offered[domain.SEVES] || offered[domain.SEVSNP]) {
		d.addf("sev-es-shared", "%d SEV-ES and %d SEV-SNP domains share %d contexts: they cannot all run at once; move some to another host",
			held[domain.SEVES], held[domain.SEVSNP], *most.esGuests)
	}
	return out, d
}

// stands says whether SEV-ES has a provider of its own.
func stands(offered map[domain.Security]bool, held map[domain.Security]int64) bool {
	return !offered[domain.SEVSNP] || held[domain.SEVES] > 0
}

// reserved are the contexts of the common pool that a provider cannot give.
func reserved(p Provider, offered map[domain.Security]bool, held map[domain.Security]int64) int64 {
	switch {
	case p.Security == domain.SEVSNP:
		return min(held[domain.SEVES], p.Total)
	case offered[domain.SEVSNP]:
		return p.Total - min(held[domain.SEVES], p.Total)
	}
	return min(held[domain.SEVSNP], p.Total)
}

// unusable tells of a limit for guests that cannot be.
func (l Limit) unusable(sev bool, d *doubts) {
	if l.set && l.guests > 0 && !sev {
		d.addf("sev-unusable", "%s is %d, but this host runs no guests with encrypted memory: nothing is reported", GuestsKey, l.guests)
	}
}

// total are the contexts of the SEV provider.
func (l Limit) total(most *int64, k *Kernel, d *doubts) int64 {
	switch {
	case most != nil && l.set && l.guests > *most:
		d.addf("sev-limit", "%s is %d, but the host can run %d such guests: %d are reported", GuestsKey, l.guests, *most, *most)
		return *most
	case l.set:
		if most == nil && k.Guests > 0 && l.guests > int64(k.Guests) {
			d.addf("sev-limit", "%s is %d, but the kernel says that %d such guests can run (/sys/fs/cgroup/misc.capacity): lower it, or guests fail when they are started",
				GuestsKey, l.guests, k.Guests)
		}
		return l.guests
	case most != nil:
		return *most
	}
	remedy := "set " + GuestsKey
	if k.Guests > 0 {
		remedy += fmt.Sprintf(" = %d, which is the kernel's number", k.Guests)
	}
	d.addf("sev-unlimited", "libvirt does not say how many SEV guests can run (8.0 and later do): no limit is reported, and what is too many fails when it is started; %s", remedy)
	return providertree.MaxUnit
}
