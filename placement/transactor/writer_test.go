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
	"github.com/compute-agent/compute-agent/test/placementtest"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// scripted is a store whose commits fail as a list says, and then succeed.
type scripted struct {
	placementtest.MemoryStore
	exclusive bool
	down      bool // Load fails
	loads     int
}

func (s *scripted) Exclusive() bool { return s.exclusive }

func (s *scripted) Load(ctx context.Context) (*ledger.State, error) {
	s.loads++
	if s.down {
		return nil, ledger.ErrUnavailable
	}
	return s.MemoryStore.Load(ctx)
}

// TestCommitOutcomes has the rows of the table in doc.go: writes that wait for one commit, what
// this one and the next ones fail with, and what the writes are answered.
func TestCommitOutcomes(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	conflict, reload, row := ledger.ErrVersionConflict, ledger.ErrReload, ledger.ErrRow
	unknown := ledger.ErrOutcomeUnknown
	taken := errors.Join(ledger.ErrReload, ledger.ErrDuplicate)
	const (
		whole    = "reload the state: the storage cannot be used now"
		isTaken  = "name is taken: the database takes a name or uuid of the request for equal to one that exists"
		mayBe    = "the outcome of the write is not known: it may or may not have happened"
		full     = "write to the database: the disk is full"
		noRow    = "write to the database: the database does not take a row"
		busy     = "other servers keep committing first: try again later (10 tries): "
		busyRows = busy + "the whole state must be reloaded"
		busyBase = busy + "another server committed first"
	)
	for name, tc := range map[string]struct {
		shared  bool // other processes commit as well
		down    bool // the state cannot be loaded
		moves   bool // with each failure, another process commits
		fails   []error
		answers []string // of each write; "" is success
		commits []int    // how many writes each has
		loads   int
	}{
		"committed":         {answers: []string{"", ""}, commits: []int{2}},
		"committed, shared": {shared: true, answers: []string{"", ""}, commits: []int{2}},
		"conflict":          {fails: []error{conflict}, answers: []string{"", ""}, commits: []int{2, 2}},
		"conflict, always": {fails: slices.Repeat([]error{conflict}, 10), answers: []string{busyBase},
			commits: slices.Repeat([]int{1}, 10)},
		"conflict, always, the first assumed": {shared: true, fails: slices.Repeat([]error{conflict}, 11),
			answers: []string{busyBase}, commits: slices.Repeat([]int{1}, 11)},
		"conflict, another version": {shared: true, moves: true, fails: []error{conflict},
			answers: []string{""}, commits: []int{1, 1}, loads: 1},
		"reload": {fails: []error{reload}, answers: []string{"", ""}, commits: []int{2, 2}, loads: 1},
		"reload, twice": {fails: []error{reload, reload}, answers: []string{"", ""},
			commits: []int{2, 2, 1, 1}, loads: 2},
		"reload, always": {fails: slices.Repeat([]error{reload}, 10), answers: []string{busyRows, busyRows},
			commits: []int{2, 2, 1, 1, 2, 1, 1, 2, 1, 1}, loads: 10},
		"reload fails": {down: true, fails: []error{reload}, answers: []string{whole, whole},
			commits: []int{2}, loads: 1},
		"duplicate": {fails: []error{taken, taken}, answers: []string{isTaken}, commits: []int{1, 1}, loads: 2},
		"duplicate, of two": {fails: []error{taken, taken, taken}, answers: []string{isTaken, ""},
			commits: []int{2, 2, 1, 1}, loads: 3},
		"duplicate, another version": {moves: true, fails: []error{taken, taken}, answers: []string{""},
			commits: []int{1, 1, 1}, loads: 2},
		"row, of one": {fails: []error{row}, answers: []string{noRow}, commits: []int{1}},
		"row, of two": {fails: []error{row, row}, answers: []string{noRow, ""}, commits: []int{2, 1, 1}},
		"unknown":     {fails: []error{unknown}, answers: []string{mayBe, mayBe}, commits: []int{2}, loads: 1},
		"unknown, reload fails": {down: true, fails: []error{unknown}, answers: []string{mayBe + "\n" + whole},
			commits: []int{1}, loads: 1},
		"unknown, shared": {shared: true, fails: []error{unknown}, answers: []string{mayBe, mayBe}, commits: []int{2}},
		"unknown, and more": {shared: true, fails: []error{errors.Join(unknown, conflict, reload, row)},
			answers: []string{errors.Join(unknown, conflict, reload, row).Error()}, commits: []int{1}},
		"failed": {fails: []error{ledger.ErrFull}, answers: []string{full, full}, commits: []int{2}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &scripted{exclusive: !tc.shared}
				l := open(t, store)
				entered, let := make(chan struct{}), make(chan struct{})
				store.Before = func(int64, []ledger.Change) error {
					close(entered)
					<-let
					return nil
				}
				update := func(name string) <-chan error {
					done := make(chan error, 1)
					go func() {
						_, err := l.Update(ctx, create(name))
						done <- err
					}()
					synctest.Wait() // it has its place in the queue
					return done
				}
				first := update("first")
				<-entered
				var waiting []<-chan error
				for i := range tc.answers {
					waiting = append(waiting, update(string(rune('a'+i))))
				}
				var commits []int
				fails := tc.fails
				store.Before = func(_ int64, changes []ledger.Change) error {
					commits = append(commits, len(changes))
					if len(fails) == 0 {
						return nil
					}
					err := fails[0]
					fails = fails[1:]
					if tc.moves {
						store.State.Version++
					}
					return err
				}
				store.loads, store.down = 0, tc.down
				close(let)
				testproc.Check(t, <-first)
				var answers []string
				for _, done := range waiting {
					text := ""
					if err := <-done; err != nil {
						text = err.Error()
					}
					answers = append(answers, text)
				}
				testproc.Samef(t, cmp.Diff(tc.answers, answers), "answers")
				testproc.EqualList(t, commits, tc.commits, "writes in each commit: %v")
				testproc.Equal(t, store.loads, tc.loads, "%d loads")
			})
		})
	}
}
