// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"strings"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hypervisor"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
)

// lookAgain is the number of passes after which a domain's XML is read without an event: libvirt
// sends none for pins changed with virsh.
const lookAgain = 10

// domainCache remembers the domains from pass to pass.
type domainCache struct {
	known map[string]entry
	pass  int
}

type entry struct {
	key    hypervisor.Key
	read   int // the pass
	domain domain.Domain
	err    error
}

// list returns all domains with readable XML, running or only defined, whatever created them.
// Unreadable ones are returned as discrepancies. all reads every XML again.
//
// Errors: [hypervisor.ErrUnsupported] if the hypervisor has no domains that could be listed.
//
// Cost: one call for the list and one for the states, and one for each domain that something
// happened to; each is read every lookAgain passes in any case, at different ones.
func (dc *domainCache) list(
	ctx context.Context, l *hypervisor.Link, all bool,
) ([]domain.Domain, []machine.Discrepancy, error) {
	dc.pass++
	// The call may continue after its caller gave up, so it gets today's values.
	pass, entries, index := dc.pass, dc.known, 0
	list, err := hypervisor.Domains(ctx, l, func(d hypervisor.Domain) bool {
		index++
		e, known := entries[d.UUID]
		return all || !known || e.key != d.Key() || pass-e.read >= lookAgain+index%lookAgain
	})
	if err != nil {
		return nil, nil, err
	}
	next := make(map[string]entry, len(list))
	var domains []domain.Domain
	var discrepancies []machine.Discrepancy
	for _, d := range list {
		e := dc.known[d.UUID]
		if d.XML != "" {
			e.domain, e.err = domain.Parse([]byte(d.XML))
			if e.err == nil && e.domain.UUID != d.UUID {
				e.err = errors.New("its XML has another uuid")
			}
			e.key, e.read = d.Key(), dc.pass
		}
		next[d.UUID] = e
		if e.err != nil {
			discrepancies = append(
				discrepancies,
				machine.Discrepancyf(unreadPrefix+d.UUID,
					"cannot read libvirt's XML of domain %.80q (%s), so its resources are unknown: %v", d.Name, d.UUID,
					e.err),
			)
			continue
		}
		domains = append(domains, e.domain)
	}
	dc.known = next
	return domains, discrepancies, nil
}

// unreadPrefix begins the names of the discrepancies about domains; the uuid follows.
const unreadPrefix = "domain-"

// unreadDomains are the domains that discrepancies are about, by uuid: what is wrong with each.
func unreadDomains(discrepancies []machine.Discrepancy) map[string]string {
	out := make(map[string]string, len(discrepancies))
	for _, d := range discrepancies {
		if uuid, is := strings.CutPrefix(d.Key, unreadPrefix); is {
			out[uuid] = d.Text
		}
	}
	return out
}
