// SPDX-License-Identifier: Apache-2.0

package encryption

import (
	"fmt"
	"strings"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/providertree"
)

// Host is what is known of a host's memory encryption.
type Host struct {
	Libvirt Libvirt
	// Kernel is nil where the kernel knows of no such thing: another processor, or kvm_amd is not loaded.
	Kernel *Kernel
}

// Libvirt is what libvirt says.
type Libvirt struct {
	// SEV is <sev supported='yes'> in the domain capabilities; SNP, that <launchSecurity> there lists sev-snp.
	SEV, SNP bool
	// Capabilities are the limits in the domain capabilities, Node those of virNodeGetSEVInfo. The former come first.
	Capabilities, Node Maximum
}

// Maximum is how many guests can run at once; nil where libvirt does not say (before 8.0).
type Maximum struct {
	// Guests are SEV guests; ESGuests are SEV-ES and SEV-SNP guests together.
	Guests, ESGuests *uint
}

// Kernel is what kvm_amd was allowed to do (its parameters sev, sev_es and sev_snp), and how many guests can run at once by the misc cgroup
// controller, 0 where it does not say. It has the fields of sysfs.SEV and converts from it.
type Kernel struct {
	SEV, ES, SNP     bool
	Guests, ESGuests int
}

// doubts collects.
type doubts []machine.Doubt

func (d *doubts) addf(key, format string, args ...any) {
	*d = append(*d, machine.Doubtf(key, format, args...))
}

// witnesses are what the two say of a kind.
type witnesses struct{ libvirt, kernel bool }

// limits are those that count. A nil one is not known.
type limits struct{ guests, esGuests *int64 }

// kinds says what both libvirt and the kernel offer.
func (h Host) kinds(l limits, d *doubts) map[domain.Security]bool {
	var k Kernel
	if h.Kernel != nil {
		k = *h.Kernel
	}
	es := h.Libvirt.SEV && l.esGuests != nil && *l.esGuests > 0
	saw := map[domain.Security]witnesses{
		domain.SEV:    {h.Libvirt.SEV, k.SEV},
		domain.SEVES:  {es, k.SEV && k.ES},
		domain.SEVSNP: {es && h.Libvirt.SNP, k.SEV && k.SNP},
	}
	offered := map[domain.Security]bool{}
	for _, kind := range all {
		w, sev := saw[kind.Security], kind.Security == domain.SEV
		offered[kind.Security] = w.libvirt && w.kernel && (sev || offered[domain.SEV])
		switch {
		case !sev && !offered[domain.SEV]: // said of SEV, or there is nothing to say
		case w.libvirt && !w.kernel:
			d.addf(kind.doubt(), "libvirt offers %s, but the kernel has not switched it on (%s): it is not reported. Load kvm_amd with %s=1, or restart libvirtd so that it looks anew",
				kind.word, kind.parameter(), kind.module)
		case w.kernel && !w.libvirt && l.esGuests == nil && !sev:
			d.addf(kind.doubt(), "the kernel has %s switched on (%s), but libvirt does not say how many such guests can run (8.0 and later do): it is not reported",
				kind.word, kind.parameter())
		case w.kernel && !w.libvirt:
			d.addf(kind.doubt(), "the kernel has %s switched on (%s), but libvirt does not offer it: it is not reported. Firmware may have no contexts for it, or QEMU be too old, or libvirt remember an earlier start: then remove its cache of capabilities and restart it",
				kind.word, kind.parameter())
		}
	}
	return offered
}

// limits tells how many guests libvirt allows; where its two answers or the kernel's differ, the domain capabilities count, as in Nova.
func (h Host) limits(d *doubts) limits {
	var k Kernel
	if h.Kernel != nil {
		k = *h.Kernel
	}
	c, n := h.Libvirt.Capabilities, h.Libvirt.Node
	if !h.Libvirt.SEV {
		d = new(doubts) // nothing follows from these numbers
	}
	return limits{
		guests:   settle("sev-maximum", "SEV", c.Guests, n.Guests, k.Guests, d),
		esGuests: settle("sev-es-maximum", "SEV-ES and SEV-SNP", c.ESGuests, n.ESGuests, k.ESGuests, d),
	}
}

// settle picks the number that counts.
func settle(key, word string, capabilities, node *uint, kernel int, d *doubts) *int64 {
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
		d.addf(key, "libvirt says that %d %s guests can run, but it is %s: %d counts, and if that is too many, guests fail when they are started",
			*first, word, strings.Join(others, ", and "), counts)
	}
	return &counts
}
