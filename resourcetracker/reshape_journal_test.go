// SPDX-License-Identifier: Apache-2.0

package resourcetracker_test

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/resourcetracker/journal"
	"github.com/compute-agent/compute-agent/test/testproc"
)

type fullDisk struct{}

func (fullDisk) Begin(string, *reportclient.Reshape) error     { return syscall.ENOSPC }
func (fullDisk) End(string, reportclient.ReshapeOutcome) error { return errors.New("it never began") }

// TestFullDiskIsReported: without the journal there is no reshape, and the status says what to do.
func TestFullDiskIsReported(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		s := start(t, vgpus, func(s *scene) { s.placement.log = fullDisk{} })
		<-s.tracker.Ready()
		if n := s.tracker.Status().Nodes[0]; !strings.Contains(n.Error, "no space left") ||
			!strings.Contains(n.Hint, "state_dir") {
			t.Errorf("the node with a full disk: got %+v, want the error and a hint about state_dir", n)
		}
		s.checkLayout(oldLayout)
	})
}

// TestLostAnswerIsResolvedByComparing: the reshape happened, its answer was lost, and the
// next pass finds that out before anything else.
func TestLostAnswerIsResolvedByComparing(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, c := range map[string]struct {
		prepare func(*scene)
		want    []string
	}{
		"it happened": {func(s *scene) { s.placement.lost = true }, []string{"happened, compared"}},
		"too much changed to tell": {func(s *scene) {
			s.placement.lost, s.placement.outcome = true,
				reportclient.ReshapeUnknown
		}, []string{"unknown, compared"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := start(t, vgpus, c.prepare)
				<-s.tracker.Ready()
				if d := cmp.Diff([]string{""}, s.outcomes()); d != "" {
					t.Fatalf("journal right after it: %v", s.outcomes())
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				s.checkLayout(newLayout)
				if d := cmp.Diff(c.want, s.outcomes()); d != "" || s.placement.compared != 1 {
					t.Errorf("compared %d times; journal (-want +got):\n%s", s.placement.compared, d)
				}
				level := `"level":"info"`
				if strings.HasPrefix(c.want[0], "unknown") {
					level = `"level":"warn"`
				}
				if s.logged("reshape whose answer was lost", level) != 1 {
					t.Error("the log does not say what became of it")
				}
				if s.gathered() != 1 || s.tracker.Status().State != resourcetracker.Reporting {
					t.Errorf("gathered %d times; %+v", s.gathered(), s.tracker.Status())
				}
			})
		})
	}
}

// TestCrash: the agent ends between the journal's entry and the request, or between the request and
// the outcome; the next start compares and goes on from there.
func TestCrash(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	crash := errors.New("the agent is killed")
	for name, c := range map[string]struct {
		happened bool
		want     []string
	}{
		"before the request": {false, []string{"refused, compared", "happened"}},
		"after the request":  {true, []string{"happened, compared"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := start(t, vgpus, func(s *scene) {
					s.placement.log = killer{s.journal}
					if c.happened {
						s.placement.lost = true
					} else {
						s.placement.onReshape = func() error { return crash }
					}
				})
				<-s.tracker.Ready()
				_ = s.end()
				if d := cmp.Diff([]string{""}, s.outcomes()); d != "" {
					t.Fatalf("journal after the crash: %v", s.outcomes())
				}
				again := start(t, func(n *scene) {
					n.placement, n.driver.answer, n.journal = s.placement, moveVGPUs, journal.New(s.stateDir())
					n.placement.lost, n.placement.onReshape, n.placement.log = false, nil, n.journal
				})
				<-again.tracker.Ready()
				again.checkLayout(newLayout)
				testproc.Samef(t, cmp.Diff(c.want, again.outcomes()), "journal")
			})
		})
	}
}

// killer is a journal of a process that does not live to write the outcome.
type killer struct{ *journal.Journal }

func (killer) End(string, reportclient.ReshapeOutcome) error { return nil }

// TestUnresolvedEntryWaitsForPlacement: before it is known what became of the last reshape, nothing
// else is done.
func TestUnresolvedEntryWaitsForPlacement(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		s := start(t, vgpus, func(s *scene) {
			must(s, s.journal.Begin(nodeUUID,
				&reportclient.Reshape{Providers: []reportclient.ReshapedProvider{{UUID: nodeUUID,
					After: providertree.Inventories{"VCPU": {Total: 8}}}}}))
			s.placement.compareErr = reportclient.ErrUnavailable
		})
		<-s.tracker.Ready()
		time.Sleep(time.Hour)
		synctest.Wait()
		if s.calls() != 0 || s.reads() != 0 || s.tracker.Status().State != resourcetracker.Degraded {
			t.Errorf("driver asked %d times, tree read %d times; %+v", s.calls(), s.reads(), s.tracker.Status())
		}
		s.placement.set(func(p *fakePlacement) { p.compareErr = nil })
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		s.checkLayout(newLayout)
	})
}

// TestDamagedUnresolvedEntryStopsTheStart: a damaged entry cannot be compared. Once it is removed,
// the agent starts.
func TestDamagedUnresolvedEntryStopsTheStart(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		damage := func(s *scene) {
			must(s, s.journal.Begin(nodeUUID, &reportclient.Reshape{}))
			entries := testproc.Try(journal.Read(s.stateDir())).Or(s.t)
			must(s, os.WriteFile(entries[0].File, []byte(`{"version": 1, "id`), 0o600))
			s.journal = journal.New(s.stateDir())
			s.placement.log = s.journal
		}
		s := start(t, vgpus, damage)
		var fatal *resourcetracker.FatalError
		err := <-s.ended
		if !errors.As(err, &fatal) || !fatal.Protects ||
			!errors.Is(err, journal.ErrUnreadable) || !strings.Contains(err.Error(), "move "+s.stateDir()) {
			t.Errorf("the end of the tracker: got %v, want a FatalError that says what to move away", err)
		}
		s.checkLayout(oldLayout)
	})
}
