// SPDX-License-Identifier: Apache-2.0

package hostpolicy

import (
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/placement/ledger"
)

// reservedNodes are the compute nodes that certificates of hosts name, as far as this process has
// seen the certificates. They are safe for concurrent use.
type reservedNodes struct {
	now func() time.Time

	mu    sync.RWMutex
	nodes map[string]reservation // by uuid
	sweep sweeper                // of those of expired certificates
}

// reservation says whose a node is, until the certificate expires.
type reservation struct {
	host  string
	until time.Time
}

// reserve reserves the nodes of a host. Cost: one look-up for each of them, and a look at all each
// time that their number has doubled, to drop those of expired certificates.
func (r *reservedNodes) reserve(id *pki.Identity) {
	if r.reserved(id) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	sweep(&r.sweep, r.nodes, func(one reservation) bool { return !now.Before(one.until) })
	for _, node := range id.Nodes {
		r.nodes[node] = reservation{id.Name, id.Expires}
	}
}

func (r *reservedNodes) reserved(id *pki.Identity) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, node := range id.Nodes {
		if one := r.nodes[node]; one.host != id.Name || one.until.Before(id.Expires) {
			return false
		}
	}
	return true
}

// host is the host that a node is reserved for; "" for none.
func (r *reservedNodes) host(node string) string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if one := r.nodes[node]; r.now().Before(one.until) {
		return one.host
	}
	return ""
}

// othersWithNodeUUID are the providers below the root of another host that have the uuid of a
// compute node of this one: a compute node is a root, and uuids are not equal by chance. One with a
// name of this host is not taken: it is the node, which an operator has put below another provider.
func (r *Request) othersWithNodeUUID(s *ledger.Snapshot) (list []*ledger.Provider) {
	for _, node := range r.id.Nodes {
		p, ok := s.Provider(node)
		if ok && p.Parent != "" && !r.owns(s, p) && !r.id.HasProvider(p.Name) {
			list = append(list, p)
		}
	}
	return list
}

// reclaimUUIDs gives providers that are taken other uuids, so that this host can make its node.
// They keep all else. It returns them as they were.
func (r *Request) reclaimUUIDs(tx *ledger.Tx) ([]*ledger.Provider, error) {
	list := r.othersWithNodeUUID(tx.Snapshot)
	for _, was := range list {
		is, err := tx.ChangeUUID(was.UUID, uuid.NewString())
		if err != nil {
			return nil, err
		}
		tx.OnOutcome(func(err error) {
			if err == nil {
				r.logReclaimed(was, is)
			}
		})
	}
	return list, nil
}

func (r *Request) logReclaimed(was, is *ledger.Provider) {
	r.policy.deps.Logger.Warn().Str("host", r.id.Name).Str("node", was.UUID).
		Str("provider", was.Name).Str("root", was.Root).Str("uuid", is.UUID).
		Msg("A provider below another root had the uuid of a compute node of this host, and got another uuid. " +
			"Find out why: may the credential of the host that made it be stolen?")
}

// NeedsReclaim reports whether providers of others have the uuids of compute nodes of this host, so
// that Reclaim has to run before it reads.
func (r *Request) NeedsReclaim(s *ledger.Snapshot) bool { return len(r.othersWithNodeUUID(s)) > 0 }

// Reclaim is the transaction after which no provider of others has the uuid of a compute node of
// this host.
func (r *Request) Reclaim(tx *ledger.Tx) error {
	_, err := r.reclaimUUIDs(tx)
	return err
}
