// SPDX-License-Identifier: Apache-2.0

package api

import (
	"slices"

	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/providertree"
)

// hostRule says what a call is for a host. Calls without one are not for hosts.
type hostRule uint8

const (
	notForHosts   hostRule = iota
	hostNames              // the names of traits and classes, which belong to no host
	hostList               // a list of providers, whose query must leave only what the host may read
	hostOwn                // a provider of the host
	hostShared             // a provider of the host, or one that shares with it
	hostConsumer           // a consumer that has something of the host, or nothing
	hostCreates            // creates a trait or a class
	hostWrites             // the transaction is judged by what it touches; see guarded
	hostAllocates          // the same, about allocations
)

// String describes the rule, for documentation.
func (r hostRule) String() string {
	return [...]string{
		notForHosts: "",
		hostNames:   "yes",
		hostList: "by `in_tree` or `uuid` of its own, by a name of its own, or those that share with " +
			"its providers",
		hostOwn:       "its own",
		hostShared:    "its own, and those that share with its providers",
		hostConsumer:  "consumers that have allocations in its trees, or none at all",
		hostCreates:   "yes (`placement:hosts:names`)",
		hostWrites:    "its own",
		hostAllocates: "in its own trees (`placement:hosts:allocations`, `placement:hosts:heal`)",
	}[r]
}

// admitHost judges a request of a host before its handler runs. What the handler reads after that
// is the snapshot that was judged.
func (x *exchange) admitHost(h *hostRequest, rule hostRule) error {
	needs := map[hostRule]Action{hostConsumer: HostAllocations, hostAllocates: HostAllocations, hostCreates: HostNames}
	switch action := needs[rule]; {
	case rule == notForHosts:
		return h.refuseCall()
	case !h.allowed(HostTree):
		return h.refuse(HostTree, "this server's policy lets no such host in")
	case action != "" && !h.allowed(action):
		return h.refuse(action, "this server's policy does not allow it; ask its operator")
	}
	x.api.nodes.reserve(h.id)
	switch rule {
	case hostList, hostOwn, hostShared, hostConsumer:
		s, err := x.read()
		if err == nil {
			s, err = h.reclaimed(s)
		}
		if err != nil {
			return err
		}
		x.judged = s
		return h.mayRead(s, rule)
	default:
		return nil
	}
}

// mayRead judges what a request reads of a snapshot.
func (h *hostRequest) mayRead(s *ledger.Snapshot, rule hostRule) error {
	switch rule {
	case hostList:
		pq, err := readProviderQuery(h.x.R.URL.RawQuery, h.x.v, h.x.extensions)
		if err != nil {
			return err
		}
		return h.mayList(s, &pq)
	case hostConsumer:
		uuid := h.x.R.PathValue("consumer")
		if c, ok := s.Consumer(uuid); ok && !h.holds(s, c) {
			return h.refuseConsumer(uuid)
		}
	default:
		uuid := h.x.R.PathValue("uuid")
		if p, ok := s.Provider(uuid); ok && !h.owns(s, p) && (rule != hostShared || !h.sharesWith(s, p)) {
			return h.refuseProvider(uuid)
		}
	}
	return nil
}

// mayList judges a list of providers by its query: one of its conditions must leave nothing but
// what the host may read, whatever else Placement has.
func (h *hostRequest) mayList(s *ledger.Snapshot, pq *providerQuery) error {
	switch {
	case pq.inTree != "":
		if p, ok := s.Provider(pq.inTree); ok && !h.owns(s, p) {
			return h.refuseProvider(pq.inTree)
		}
		return nil
	case pq.uuid != "":
		if p, ok := s.Provider(pq.uuid); ok && !h.owns(s, p) && !h.sharesWith(s, p) {
			return h.refuseProvider(pq.uuid)
		}
		return nil
	case pq.name != "":
		p, ok := s.ProviderByName(pq.name)
		if ok && (h.owns(s, p) || h.sharesWith(s, p)) || !ok && h.id.HasProvider(pq.name) {
			return nil
		}
		return h.refuse(HostTree, "the name %s is not this host's", shortened(pq.name))
	case slices.ContainsFunc(pq.required,
		func(set []string) bool { return slices.Equal(set, []string{providertree.TraitSharesViaAggregate}) }):
		// Those that share with the host's providers, by aggregates of these.
		if slices.ContainsFunc(pq.memberOf, func(set []string) bool {
			return !slices.ContainsFunc(set, func(aggregate string) bool { return !h.inAggregate(s, aggregate) })
		}) {
			return nil
		}
		return h.refuse(HostTree, "none of the conditions member_of has only aggregates of this host's providers")
	}
	return h.refuse(HostTree,
		"the list can have providers of others; a host lists by uuid, by a name of its own, by in_tree, or by "+
			"member_of and required=%s",
		providertree.TraitSharesViaAggregate)
}
