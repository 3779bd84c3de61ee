// SPDX-License-Identifier: Apache-2.0

package transactor_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestOutcomeReachesAbandonedWrites: the outcome of a write is reported once, before its answer, in
// the order of the commits, and also if its caller gave up; an outcome that is not known is
// reported as that. Writes that were refused or failed have none.
func TestOutcomeReachesAbandonedWrites(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		h := openHeld(t)
		var got []string
		watched := func(name string, fn func(*ledger.Tx) error) func(*ledger.Tx) error {
			return func(tx *ledger.Tx) error {
				tx.OnOutcome(func(err error) {
					if errors.Is(err, ledger.ErrOutcomeUnknown) {
						name += " unknown"
					}
					got = append(got, name)
				})
				return fn(tx)
			}
		}
		update := func(ctx context.Context, name string, fn func(*ledger.Tx) error) <-chan error {
			done := make(chan error, 1)
			go func() {
				_, err := h.Update(ctx, watched(name, fn))
				done <- err
			}()
			synctest.Wait()
			return done
		}
		leaving, leave := context.WithCancel(ctx)
		first := update(leaving, "abandoned", create("a"))
		<-h.entered
		leave()
		testproc.ErrorIs(t, <-first, ledger.ErrOutcomeUnknown, "the abandoned write: %v")
		second, refused, idle := update(ctx, "second", create("b")), update(ctx, "refused", create("a")),
			update(ctx, "idle", func(*ledger.Tx) error { return nil })
		third := update(ctx, "third", create("c"))
		h.let <- ledger.ErrVersionConflict // run again
		<-h.entered
		h.let <- nil
		<-h.entered
		h.let <- nil
		if a, b, c, d := <-second, <-refused, <-idle,
			<-third; a != nil || ledger.KindOf(b) != ledger.DuplicateUUID || c != nil || d != nil {
			t.Errorf("answers: %v, %v, %v, %v", a, b, c, d)
		}
		failed := update(ctx, "failed", create("d"))
		<-h.entered
		h.let <- ledger.ErrFull
		unknown := update(ctx, "lost", create("e"))
		<-h.entered
		h.let <- ledger.ErrOutcomeUnknown
		if a, b := <-failed, <-unknown; !errors.Is(a, ledger.ErrFull) || !errors.Is(b, ledger.ErrOutcomeUnknown) {
			t.Errorf("answers: %v, %v", a, b)
		}
		if want := []string{"abandoned", "second", "third", "lost unknown"}; !slices.Equal(got, want) {
			t.Errorf("outcomes %q, want %q", got, want)
		}
		h.store.Before = nil
	})
}

// announcement is an intent that notes what is asked of it.
type announcement struct {
	note func(string)
	name string
	err  error
}

func (a announcement) Wait(context.Context) error { a.note("wait " + a.name); return a.err }
func (a announcement) Abandon()                   { a.note("abandon " + a.name) }

// TestBeforeCommit: writes are announced before each try to commit them, all of a commit before the
// first is waited for, and abandoned if they are not committed. A write that may not be committed
// takes those of its commit with it, which are on top of it. Reads and refused writes announce
// nothing.
func TestBeforeCommit(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		h := openHeld(t)
		var got []string
		note := func(text string) { got = append(got, text) }
		update := func(name string, fn func(*ledger.Tx) error, refused error) <-chan error {
			done := make(chan error, 1)
			go func() {
				_, err := h.Update(ctx, func(tx *ledger.Tx) error {
					tx.BeforeCommit(func() ledger.Intent {
						note("announce " + name)
						return announcement{note, name, refused}
					})
					return fn(tx)
				})
				done <- err
			}()
			synctest.Wait()
			return done
		}
		first := update("a", create("a"), nil)
		<-h.entered
		h.let <- ledger.ErrVersionConflict // run again
		<-h.entered
		full := errors.New("the log is full")
		second, third, fourth := update("b", create("b"), full), update("c", create("c"), nil),
			update("d", create("a"), nil)
		h.let <- nil
		a, b, c, d := <-first, <-second, <-third, <-fourth
		if a != nil || !errors.Is(b, full) || !errors.Is(c, full) || !errors.Is(d, full) {
			t.Errorf("answers: %v, %v, %v, %v", a, b, c, d)
		}
		failed := update("e", create("e"), nil)
		<-h.entered
		h.let <- ledger.ErrFull
		testproc.ErrorIs(t, <-failed, ledger.ErrFull, "the write: %v")
		h.store.Before = nil
		want := []string{
			"announce a", "wait a", "abandon a", "announce a", "wait a",
			"announce b", "announce c", "wait b", "abandon b", "abandon c",
			"announce e", "wait e", "abandon e",
		}
		testproc.Same(t, cmp.Diff(want, got))
		s := testproc.Try(h.Snapshot(ctx)).Or(t)
		for _, name := range []string{"b", "c", "e"} {
			if _, there := s.Provider(name); there {
				t.Errorf("%s is there", name)
			}
		}
	})
}
