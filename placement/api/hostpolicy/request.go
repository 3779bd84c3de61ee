// SPDX-License-Identifier: Apache-2.0

package hostpolicy

import (
	"fmt"
	"net/http"

	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/providertree"
)

var shortened = osapi.Shortened

// Request checks a request of a host (osapi.Principal.Host). The rules for users do not apply to
// hosts, and those for hosts apply to no other client.
type Request struct {
	policy *Policy
	x      *osapi.Exchange
	id     *pki.Identity
}

// Request returns the checks of an authenticated request; nil if it is not from a host.
func (p *Policy) Request(x *osapi.Exchange) *Request {
	if x.Caller.Host == nil {
		return nil
	}
	return &Request{p, x, x.Caller.Host}
}

// allowed reports whether the policy allows an action to the host.
func (r *Request) allowed(action Action) bool {
	return r.policy.deps.Allows(action, &r.x.Caller)
}

// owns reports whether a provider is in a tree of the host: the name of its root is the host's, and
// so is its uuid, if the certificate names compute nodes. The name alone would give a host h3 what
// a host h3.site2 has. Cost: one look-up.
func (r *Request) owns(s *ledger.Snapshot, p *ledger.Provider) bool {
	if p.Parent == "" {
		return r.ownsRoot(p)
	}
	root, ok := s.Provider(p.Root)
	return ok && r.ownsRoot(root)
}

// ownsRoot is owns of a root.
func (r *Request) ownsRoot(root *ledger.Provider) bool {
	return r.id.HasName(root.Name) && r.id.HasNode(root.UUID)
}

// sharesWith reports whether a provider shares what it has with a tree of the host: it has the
// trait, and is in an aggregate with a provider of the tree. Cost: the members of its aggregates.
func (r *Request) sharesWith(s *ledger.Snapshot, p *ledger.Provider) bool {
	if !p.HasTrait(providertree.TraitSharesViaAggregate) {
		return false
	}
	for _, aggregate := range p.Aggregates {
		if r.inAggregate(s, aggregate) {
			return true
		}
	}
	return false
}

// inAggregate reports whether a provider of the host is in an aggregate. Cost: the members, unless
// a root that is named as the certificate says has one of them below it.
func (r *Request) inAggregate(s *ledger.Snapshot, aggregate string) bool {
	members := s.InAggregate(aggregate)
	if members.Len() == 0 {
		return false
	}
	for _, name := range r.id.Names {
		root, ok := s.ProviderByName(name)
		if !ok || root.Parent != "" || !r.ownsRoot(root) {
			continue
		}
		for _, p := range s.Tree(root.UUID) {
			if members.Has(p) {
				return true
			}
		}
	}
	for p := range members.All() {
		if r.owns(s, p) {
			return true
		}
	}
	return false
}

// holds reports whether a consumer has allocations in the trees of the host.
func (r *Request) holds(s *ledger.Snapshot, c *ledger.Consumer) bool {
	for i := range c.Allocations {
		if p, ok := s.Provider(c.Allocations[i].Provider); ok && r.owns(s, p) {
			return true
		}
	}
	return false
}

// refuse is the answer to what a host may not do: the rule, why, and what to do.
func (r *Request) refuse(action Action, why string, args ...any) *osapi.Error {
	e := osapi.Errorf(http.StatusForbidden, "Policy does not allow the host %s to do this (%s): %s.",
		shortened(r.id.Name), action, fmt.Sprintf(why, args...))
	e.Code = string(wire.CodeHost)
	e.Hint = "the credential of a host was used for what is not that host's: find out why; if the credential may be " +
		"stolen, put the host on the deny list"
	return e
}

// refuseCall is the answer to calls that no host may make.
func (r *Request) refuseCall() *osapi.Error {
	return r.refuse(ActionTree, "%s %s is not for hosts; use the credential of a user with the role service or admin",
		r.x.R.Method, r.x.Route)
}

// refuseProvider is the answer about a provider of others.
func (r *Request) refuseProvider(uuid string) *osapi.Error {
	return r.refuse(ActionTree,
		"resource provider %s is not in a tree of this host, whose root is named as the host is, or as that with a "+
			"domain, and is a compute node of its certificate if that names any. "+
			"Check which name and nodes the host's credential has; for another host's tree use the credential of a "+
			"user with the role service or admin", shortened(uuid))
}

// refuseConsumer is the answer about a consumer of others.
func (r *Request) refuseConsumer(uuid string) *osapi.Error {
	return r.refuse(ActionAllocations, "consumer %s has allocations, and none of them in a tree of this host",
		shortened(uuid))
}
