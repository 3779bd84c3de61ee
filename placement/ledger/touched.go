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

// Touched is what a transaction changed, compared with its base. What is not named has the same
// rows before and after; what is named can be equal but for its generation and times. What was
// created and removed by the same transaction is not named.
//
// Providers are touched by changes of their own rows: name, parent, root, generation, inventories,
// traits and aggregates. What is used of a provider follows from the consumers: an allocation that
// goes need not touch its provider. A renamed class is touched itself, but not the providers and
// consumers that name it; neither are those that name a provider whose uuid changed.
type Touched struct {
	Providers []Edit[Provider] // in order of creation
	Consumers []Edit[Consumer] // in order of their uuids
	Classes   []Edit[ResourceClass]
	Traits    []Edit[Trait]
	Hosts     []Edit[Host]
}

// Base is the state on which the transaction runs: that before its first write. Writes that are
// committed together with it, and run before it, are part of it. It is immutable, but its Version
// is that of the last commit.
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

// Intent is what is announced of a transaction before it is committed.
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
