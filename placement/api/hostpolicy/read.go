// SPDX-License-Identifier: Apache-2.0

package hostpolicy

import (
	"slices"

	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/providertree"
)

// Access says what a call is for a host. NoAccess, the zero value, is a call that is not for hosts.
type Access uint8

// What calls are for a host.
const (
	NoAccess         Access = iota
	ReadNames               // the names of traits and classes, which belong to no host
	ReadList                // a list of providers, whose query must leave only what the host may read
	ReadOwn                 // a provider of the host
	ReadShared              // a provider of the host, or one that shares with it
	ReadConsumer            // a consumer that has something of the host, or nothing
	CreateNames             // creates a trait or a class
	WriteTree               // the transaction is checked by what it touches; see Guarded
	WriteAllocations        // the same, about allocations
)

// String describes what a host may do with the call, for documentation.
func (a Access) String() string {
	return [...]string{
		NoAccess:  "",
		ReadNames: "yes",
		ReadList: "by `in_tree` or `uuid` of its own, by a name of its own, or those that share with " +
			"its providers",
		ReadOwn:          "its own",
		ReadShared:       "its own, and those that share with its providers",
		ReadConsumer:     "consumers that have allocations in its trees, or none at all",
		CreateNames:      "yes (`placement:hosts:names`)",
		WriteTree:        "its own",
		WriteAllocations: "in its own trees (`placement:hosts:allocations`, `placement:hosts:heal`)",
	}[a]
}

// Reads reports whether the call reads what belongs to a host, so that MayRead has to check the
// snapshot that the answer is made of.
func (a Access) Reads() bool {
	return a == ReadList || a == ReadOwn || a == ReadShared || a == ReadConsumer
}

// Admit refuses a call that no host may make, or that the server's policy does not allow to hosts.
// It runs before the handler. If it admits the call, it reserves the uuids of the compute nodes in
// the host's certificate for the host.
func (r *Request) Admit(access Access) error {
	needs := map[Access]Action{
		ReadConsumer: ActionAllocations, WriteAllocations: ActionAllocations, CreateNames: ActionNames,
	}
	switch action := needs[access]; {
	case access == NoAccess:
		return r.refuseCall()
	case !r.allowed(ActionTree):
		return r.refuse(ActionTree, "this server's policy lets no such host in")
	case action != "" && !r.allowed(action):
		return r.refuse(action, "this server's policy does not allow it; ask its operator")
	}
	r.policy.nodes.reserve(r.id)
	return nil
}

// MayRead checks what a request reads of a snapshot: the provider or the consumer in its path, or
// for ReadList the query that list returns. It returns an error of list.
func (r *Request) MayRead(s *ledger.Snapshot, access Access, list func() (wire.ProviderQuery, error)) error {
	switch access {
	case ReadList:
		q, err := list()
		if err != nil {
			return err
		}
		return r.mayList(s, &q)
	case ReadConsumer:
		uuid := r.x.R.PathValue("consumer")
		if c, ok := s.Consumer(uuid); ok && !r.holds(s, c) {
			return r.refuseConsumer(uuid)
		}
	default:
		uuid := r.x.R.PathValue("uuid")
		if p, ok := s.Provider(uuid); ok && !r.owns(s, p) && (access != ReadShared || !r.sharesWith(s, p)) {
			return r.refuseProvider(uuid)
		}
	}
	return nil
}

// mayList checks the query of a list of providers: one of its conditions must select nothing but
// what the host may read, whatever else Placement has.
func (r *Request) mayList(s *ledger.Snapshot, q *wire.ProviderQuery) error {
	switch {
	case q.InTree != "":
		if p, ok := s.Provider(q.InTree); ok && !r.owns(s, p) {
			return r.refuseProvider(q.InTree)
		}
		return nil
	case q.UUID != "":
		if p, ok := s.Provider(q.UUID); ok && !r.owns(s, p) && !r.sharesWith(s, p) {
			return r.refuseProvider(q.UUID)
		}
		return nil
	case q.Name != "":
		p, ok := s.ProviderByName(q.Name)
		if ok && (r.owns(s, p) || r.sharesWith(s, p)) || !ok && r.id.HasProvider(q.Name) {
			return nil
		}
		return r.refuse(ActionTree, "the name %s is not this host's", shortened(q.Name))
	case slices.ContainsFunc(q.Required,
		func(set []string) bool { return slices.Equal(set, []string{providertree.TraitSharesViaAggregate}) }):
		// Those that share with the host's providers, by aggregates of these.
		if slices.ContainsFunc(q.MemberOf, func(set []string) bool {
			return !slices.ContainsFunc(set, func(aggregate string) bool { return !r.inAggregate(s, aggregate) })
		}) {
			return nil
		}
		return r.refuse(ActionTree, "none of the conditions member_of has only aggregates of this host's providers")
	}
	return r.refuse(ActionTree,
		"the list can have providers of others; a host lists by uuid, by a name of its own, by in_tree, or by "+
			"member_of and required=%s", providertree.TraitSharesViaAggregate)
}
