// SPDX-License-Identifier: Apache-2.0

package scheduler

// Observer receives what a Scheduler does, for metrics. Its methods are called concurrently, and
// must not block.
type Observer interface {
	// Built is called for each attempt to build a server that came to an end, and for each that did
	// not.
	Built(Outcome)
	// Corrected is called whenever the reconciler finished something that was left half done.
	Corrected(Correction)
}

// Outcome is how an attempt to build a server ended.
type Outcome string

// The outcomes. A server has any number of PutOff, and one of the others.
const (
	Placed    Outcome = "placed"    // in a cell, for its host to make
	Unplaced  Outcome = "unplaced"  // in error, in cell0: no host could take it, or the quota was exceeded meanwhile
	Abandoned Outcome = "abandoned" // its owner deleted it meanwhile
	PutOff    Outcome = "put_off"   // something could not be used; it stays in BUILD and is tried again
)

// Outcomes are all there are.
func Outcomes() []Outcome { return []Outcome{Placed, Unplaced, Abandoned, PutOff} }

// Correction is what the reconciler finished.
type Correction string

// The corrections.
const (
	ReleasedHidden Correction = "hidden_released" // the row of a server that was placed and not shown
	// The row of a server that is placed elsewhere, or nowhere any more.
	DiscardedHidden Correction = "hidden_discarded"
	FreedDeleted    Correction = "unfreed"           // the allocations of a server that its cell deleted
	ClearedClaim    Correction = "claim"             // a claim that no build leads to any more, with its allocations
	CorrectedQueued Correction = "queued_for_delete" // a mapping that differed from the cell
	Reclaimed       Correction = "reclaimed"         // a softly deleted server whose time was over
)

// Corrections are all there are.
func Corrections() []Correction {
	return []Correction{ReleasedHidden, DiscardedHidden, FreedDeleted, ClearedClaim, CorrectedQueued, Reclaimed}
}

// Scheduling reports whether this process is the one that schedules and reconciles.
func (s *Scheduler) Scheduling() bool { return s.scheduling.Load() }

func (s *Scheduler) built(o Outcome) {
	if s.opts.Observer != nil {
		s.opts.Observer.Built(o)
	}
}

// corrected reports a successful correction to the observer.
func (s *Scheduler) corrected(what Correction, err error) error {
	if err == nil && s.opts.Observer != nil {
		s.opts.Observer.Corrected(what)
	}
	return err
}
