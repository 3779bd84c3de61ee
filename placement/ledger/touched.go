// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"maps"
	"slices"
)

// Edit is one thing before and after a transaction. Before is nil if the transaction created it,
// After if it removed it. Both are immutable and can be kept.
type Edit[T any] struct{ Before, After *T }

// Touched lists what a transaction changed, compared with its base. Everything that it does not
// list has the same rows before and after. What it lists may be equal but for its generation and
// times. It does not list what the same transaction created and removed.
//
// Providers are touched by changes of their own rows: name, parent, root, generation, inventories,
// traits and aggregates. The used amounts of a provider follow from the consumers: a deleted
// allocation need not touch its provider. Renaming a class touches the class, but not the providers
// and consumers that name it. Changing a provider's uuid does not touch what names the provider.
type Touched struct {
	Providers []Edit[Provider] // in order of creation
	Consumers []Edit[Consumer] // in order of their uuids
	Classes   []Edit[ResourceClass]
	Traits    []Edit[Trait]
	Hosts     []Edit[Host]
}

// Base returns the state before the first write of the transaction. It includes earlier writes that
// are committed together with it. It is immutable. Its Version is the version of the last commit,
// which lacks those writes.
func (tx *Tx) Base() *Snapshot { return tx.base }

// Touched returns what the transaction changed until now. Cost: what it changed.
func (tx *Tx) Touched() Touched {
	providers, classes, traits, hosts := map[int64]bool{}, map[int64]bool{}, map[int64]bool{}, map[int64]bool{}
	consumers := map[string]bool{}
	consumer := func(id int64) {
		if c, ok := tx.base.consumers.Get(id); ok {
			consumers[c.UUID] = true
		} else if c, ok := tx.consumers.Get(id); ok {
			consumers[c.UUID] = true
		}
	}
	for _, change := range tx.changes {
		switch o := change.object(); o.Table {
		case Classes:
			classes[o.ID] = true
		case Traits:
			traits[o.ID] = true
		case Providers:
			providers[o.ID] = true
		case Consumers:
			if o.UUID == "" {
				consumer(o.ID)
			} else {
				consumers[o.UUID] = true
			}
		case Hosts:
			hosts[o.ID] = true
		}
	}
	return Touched{
		Providers: edits(providers, tx.base.providers.Get, tx.providers.Get),
		Consumers: edits(consumers, tx.base.lookupConsumer, tx.lookupConsumer),
		Classes:   edits(classes, tx.base.classByID.Get, tx.classByID.Get),
		Traits:    edits(traits, tx.base.traitByID.Get, tx.traitByID.Get),
		Hosts:     edits(hosts, tx.base.hosts.Get, tx.hosts.Get),
	}
}

// edits looks up what is named before and after, in order of its keys.
func edits[K int64 | string, T any](keys map[K]bool, before, after func(K) (*T, bool)) []Edit[T] {
	var out []Edit[T]
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		was, _ := before(key)
		is, _ := after(key)
		if was != nil || is != nil {
			out = append(out, Edit[T]{was, is})
		}
	}
	return out
}

// Intent is the announcement of a transaction that is about to be committed, as for an audit log.
type Intent interface {
	// Wait returns when the commit may begin. Its error refuses the transaction.
	Wait(ctx context.Context) error
	// Abandon is called if the transaction was not committed.
	Abandon()
}

// BeforeCommit registers fn to announce the transaction before each try to commit it, in the order
// of the commits. All transactions of a commit are announced before the first is waited for. It is
// not called if nothing is written.
//
// fn and Wait run in the goroutine of package transactor: all writes wait for them.
func (tx *Tx) BeforeCommit(fn func() Intent) { tx.intents = append(tx.intents, fn) }

// OnOutcome registers fn to receive the outcome of the transaction's commit: nil if it is durable,
// or else an error that wraps ErrOutcomeUnknown. It is called once, for the run that was committed,
// in the order of the commits, before the caller is answered, and also if it no longer waits. It
// is not called if nothing was written.
//
// fn runs in the goroutine of package transactor: all writes wait for it.
func (tx *Tx) OnOutcome(fn func(err error)) { tx.outcome = append(tx.outcome, fn) }
