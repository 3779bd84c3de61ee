// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"runtime/debug"
	"time"
)

// Tx is one transaction: the reads of a Snapshot, which see the writes of the
// transaction, and Placement's writes. It is valid only inside the function
// that receives it and must not be used by several goroutines. Do not write
// while you iterate over results: collect first.
//
// A write that returns an error may be half done: return the error, and
// nothing of the transaction is applied.
type Tx struct {
	draft
	base       *Snapshot
	now        time.Time
	ratio      func(float64) float64 // see Coarse; nil keeps them
	changes    []Change
	outcome    []func(error)        // see OnOutcome
	intents    []func() Intent      // see BeforeCommit
	restricted func(*Provider) bool // see KeepGenerations
	// broken is the error of an operation that stopped midway: the transaction
	// is not applied, whatever its function returns.
	broken error
}

// Result is what a transaction did.
type Result struct {
	// Snapshot is the state after the transaction; its Version is still the version of the base.
	Snapshot *Snapshot
	Changes  []Change
	Outcome  []func(error)   // What Tx.OnOutcome registered.
	Intents  []func() Intent // What Tx.BeforeCommit registered.
}

// Run runs fn in a transaction on base. With an error nothing of it is to be applied: with that of
// fn, of an operation that stopped midway, or a *PanicError. now is the time in all rows, and ratio
// that of Coarse; nil keeps allocation ratios.
func Run(base *Snapshot, now time.Time, ratio func(float64) float64, fn func(*Tx) error) (r Result, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	tx := &Tx{draft: newDraft(base), base: base, now: now.UTC().Truncate(time.Microsecond), ratio: ratio}
	if err = fn(tx); err == nil {
		err = tx.broken
	}
	return Result{tx.Snapshot, tx.changes, tx.outcome, tx.intents}, err
}

// recordRow adds a row change to those of the transaction.
func (tx *Tx) recordRow(c Change) { tx.changes = append(tx.changes, c) }

// bump increments the provider's generation.
func (tx *Tx) bump(p *Provider) *Provider {
	c := *p
	c.Generation++
	c.UpdatedAt = tx.now
	tx.replace(&c)
	tx.recordRow(BumpProvider{ID: c.ID, From: p.Generation, To: c.Generation, UpdatedAt: tx.now})
	return &c
}

// provider returns the provider with the uuid, or a ProviderNotFound error.
func (tx *Tx) provider(uuid string) (*Provider, error) {
	p, ok := tx.Provider(uuid)
	if !ok {
		return nil, &Error{Kind: ProviderNotFound, Provider: uuid}
	}
	return p, nil
}

// providerAt is provider with a check of the generation that the caller expects.
func (tx *Tx) providerAt(uuid string, generation int64) (*Provider, error) {
	p, err := tx.provider(uuid)
	if err != nil {
		return nil, err
	}
	if p.Generation != generation {
		return nil, &Error{Kind: GenerationConflict, Provider: uuid, Expected: p.Generation, Given: generation}
	}
	return p, nil
}

// name returns the ID of a name in one of the append-only tables, and adds a
// new name.
func (tx *Tx) name(table Table, name string) int64 {
	var in *names
	var next *int64
	switch table {
	case Aggregates:
		in, next = &tx.aggregates, &tx.next.aggregate
	case Projects:
		in, next = &tx.projects, &tx.next.project
	case Users:
		in, next = &tx.users, &tx.next.user
	case ConsumerTypes:
		in, next = &tx.types, &tx.next.typ
	default:
		panic("ledger: not an append-only table of names")
	}
	if id, ok := in.id(name); ok {
		return id
	}
	id := *next
	*next++
	in.put(tx.owner, id, name)
	tx.recordRow(InsertNamed{table, NamedRow{ID: id, Name: name, CreatedAt: tx.now}})
	return id
}
