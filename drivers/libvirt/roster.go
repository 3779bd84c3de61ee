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

// lookAgain is after how many passes the XML of a domain is read although nothing says that it changed: no event tells of pins that
// somebody changed with virsh.
const lookAgain = 10

// roster remembers the domains from pass to pass.
type roster struct {
	known map[string]entry
	turn  int
}

type entry struct {
	key    hypervisor.Key
	read   int // the turn
	domain domain.Domain
	err    error
}

// list returns all domains whose XML makes sense, whoever made them, running or only defined. Those of which it makes none come as
// doubts. all reads every XML anew.
//
// Errors: [hypervisor.ErrUnsupported] if the hypervisor has no domains that could be listed.
//
// Cost: one call for the list and one for the states, and one for each domain that something happened to; each is read every lookAgain passes in any
// case, at different ones.
func (r *roster) list(ctx context.Context, l *hypervisor.Link, all bool) ([]domain.Domain, []machine.Discrepancy, error) {
	r.turn++
	// The call may go on after it was given up: it sees what is so now.
	turn, entries, index := r.turn, r.known, 0
	list, err := hypervisor.Domains(ctx, l, func(d hypervisor.Domain) bool {
		index++
		e, known := entries[d.UUID]
		return all || !known || e.key != d.Key() || turn-e.read >= lookAgain+index%lookAgain
	})
	if err != nil {
		return nil, nil, err
	}
	next := make(map[string]entry, len(list))
	var domains []domain.Domain
	var doubts []machine.Discrepancy
	for _, d := range list {
		e := r.known[d.UUID]
		if d.XML != "" {
			e.domain, e.err = domain.Parse([]byte(d.XML))
			if e.err == nil && e.domain.UUID != d.UUID {
				e.err = errors.New("its XML has another uuid")
			}
			e.key, e.read = d.Key(), r.turn
		}
		next[d.UUID] = e
		if e.err != nil {
			doubts = append(doubts, machine.Discrepancyf(unreadPrefix+d.UUID, "what libvirt says of the domain %.80q (%s) cannot be read, so that nothing is known of what it holds: %v", d.Name, d.UUID, e.err))
			continue
		}
		domains = append(domains, e.domain)
	}
	r.known = next
	return domains, doubts, nil
}

// unreadPrefix begins the names of the doubts about domains; the uuid follows.
const unreadPrefix = "domain-"

// unread are the domains that doubts are about, by uuid: what is wrong with each.
func unread(doubts []machine.Discrepancy) map[string]string {
	out := make(map[string]string, len(doubts))
	for _, d := range doubts {
		if uuid, is := strings.CutPrefix(d.Key, unreadPrefix); is {
			out[uuid] = d.Text
		}
	}
	return out
}
