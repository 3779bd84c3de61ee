// SPDX-License-Identifier: Apache-2.0

package resourcetracker_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/resourcetracker/ownership"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const second = "11111111-0000-4000-8000-000000000002"

// twoNodes makes the scene that of a driver with the nodes cn1 and cn2, which Placement knows, and
// of passes that are exactly a minute apart.
func twoNodes(s *scene) {
	s.records = ownership.Open(s.t.TempDir())
	s.placement.tree = &providertree.Tree{}
	must(s, s.placement.tree.Populate(
		[]providertree.Provider{{UUID: nodeUUID, Name: "cn1"}, {UUID: second, Name: "cn2"}}))
	s.driver.nodes = []plugins.Node{{Name: "cn1"}, {Name: "cn2", UUID: second}}
	s.config = func(c *resourcetracker.Config) {
		c.Rand = func() float64 { return 0 }
		c.Logger = c.Logger.Level(zerolog.DebugLevel)
	}
}

// also has the scene change more of the configuration.
func (s *scene) also(more func(*resourcetracker.Config)) {
	before := s.config
	s.config = func(c *resourcetracker.Config) {
		before(c)
		more(c)
	}
}

func TestClaimedErrorNamesTheDrivers(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	node := plugins.Node{Name: "cn1", UUID: nodeUUID}
	const give = "compute-agent node give cn1 --to "
	for _, c := range []struct {
		err         resourcetracker.ClaimedError
		error, hint string
	}{
		{
			resourcetracker.ClaimedError{Driver: "b", Others: []string{"a", "c"}},
			"is named by the drivers a and b and c, and none of them is recorded as its owner: nothing is " +
				"written for it",
			"assign it to one driver with `" + give +
				"DRIVER`, and remove the node from the configuration of the other",
		},
		{
			resourcetracker.ClaimedError{Driver: "b", Owner: "a", Others: []string{"a"}},
			"belongs to driver a, and driver b names it too: what driver b reports for it is not written",
			"remove the node from the configuration of driver b; or, to assign it to driver b: `" + give + "b`",
		},
		{
			resourcetracker.ClaimedError{Driver: "b", Owner: "a"},
			"belongs to driver a, which does not name it now, and driver b names it: what driver b reports for it " +
				"is not written",
			"remove the node from the configuration of driver b; or, to assign it to driver b: `" + give + "b`",
		},
	} {
		c.err.Node = node
		if got, want := c.err.Error(), "node cn1 ("+nodeUUID+") "+c.error; got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
		if got := c.err.Hint(); got != c.hint {
			t.Errorf("%s\nwant %s", got, c.hint)
		}
	}
}

// TestANodeOfAnotherDriverIsLeftAlone, and shown; the driver's other node is reported. Nodes that
// the driver cannot name are claimed neither.
func TestANodeOfAnotherDriverIsLeftAlone(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		var claims []error
		s := start(t, twoNodes, func(s *scene) {
			s.also(func(c *resourcetracker.Config) {
				c.Claim = func(_ context.Context,
					nodes []plugins.Node, err error) map[string]*resourcetracker.ClaimedError {
					claims = append(claims, err)
					out := map[string]*resourcetracker.ClaimedError{}
					for _, n := range nodes {
						if n.Name == "cn1" {
							out[n.UUID] = &resourcetracker.ClaimedError{Node: n, Driver: "fake", Owner: "other"}
						}
					}
					return out
				}
			})
		})
		<-s.tracker.Ready()
		st := s.tracker.Status()
		if len(st.Contested) != 1 || st.Contested[0].Name != "cn1" || st.Contested[0].Owner != "other" ||
			st.State != resourcetracker.Degraded ||
			len(st.Nodes) != 1 || st.Nodes[0].State != resourcetracker.Reporting {
			t.Errorf("the status beside another driver's node: got %+v, want cn1 contested and the other node reported",
				st)
		}
		if tree := s.said(); tree.HasTraits(nodeUUID, resourcetracker.TraitComputeNode) ||
			!tree.HasTraits(second, resourcetracker.TraitComputeNode) {
			t.Error("written is the other driver's node, or not the driver's own")
		}
		plans, err := s.tracker.Plan(t.Context(), resourcetracker.PlanOptions{})
		var claimed *resourcetracker.ClaimedError
		if err != nil || len(plans) != 2 || plans[0].Node != "cn1" || !errors.As(plans[0].Err, &claimed) ||
			plans[1].Node != "cn2" || plans[1].Err != nil {
			t.Errorf("Plan: got %v, %+v, want a ClaimedError for cn1 and a plan for cn2", err, plans)
		}
		if named, err := s.tracker.NamedNodes(t.Context()); err != nil || len(named) != 2 || named[0].UUID != nodeUUID {
			t.Errorf("named: %v, %v", named, err)
		}
		s.driver.set(func(d *fakeDriver) { d.nodes = nil })
		s.tracker.Refresh("a person asks")
		synctest.Wait()
		if last := claims[len(claims)-1]; claims[0] != nil || last == nil ||
			!strings.Contains(last.Error(), "the list is empty") {
			t.Errorf("claimed with %v", claims)
		}
		if _, err := s.tracker.NamedNodes(t.Context()); err == nil {
			t.Error("no node was named, and no error")
		}
	})
}

// TestNothingStartsAmidAPass: what must not overlap with a pass waits for its end, or gives up with
// its context.
func TestNothingStartsAmidAPass(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		s := start(t, vgpus, guestsOf(nil))
		<-s.tracker.Ready()
		over, cancel := context.WithCancel(t.Context())
		cancel()
		var errs []error
		must(s, s.tracker.BetweenPasses(t.Context(), func() error {
			_, err1 := s.tracker.Plan(over, resourcetracker.PlanOptions{})
			_, err2 := s.tracker.Guests(over)
			err3 := s.tracker.Undo(over, nil, 1)
			err4 := s.tracker.BetweenPasses(over, func() error { t.Error("it overlaps"); return nil })
			errs = []error{err1, err2, err3, err4}
			return nil
		}))
		for i, err := range errs {
			if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "waiting for another pass to end") {
				t.Errorf("call %d during a pass: got %v, want that it was waiting for the pass", i, err)
			}
		}
		failure := errors.New("x")
		err := s.tracker.BetweenPasses(t.Context(), func() error { return failure })
		testproc.ErrorIs(t, err, failure, "BetweenPasses: %v")
	})
}

// lister is a driver that lists its guests.
type lister struct {
	*fakeDriver
	guests []plugins.Guest
	fails  error
	asked  int
}

func (l *lister) Guests(context.Context, *providertree.Tree, string) ([]plugins.Guest, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked++
	return l.guests, l.fails
}

// guestsOf has the scene's driver list guests.
func guestsOf(d *lister) func(*scene) {
	return func(s *scene) {
		if d == nil {
			d = &lister{}
		}
		d.fakeDriver = s.driver
		if s.config == nil {
			s.config = func(*resourcetracker.Config) {}
		}
		s.also(func(c *resourcetracker.Config) { c.Driver = d })
	}
}

// TestGuestsOfEveryNode, or why not.
func TestGuestsOfEveryNode(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		driver := &lister{guests: named("a", "b")}
		claimed := &resourcetracker.ClaimedError{Node: plugins.Node{Name: "cn1", UUID: nodeUUID},
			Driver: "fake", Owner: "other"}
		s := start(t, twoNodes, guestsOf(driver), func(s *scene) {
			s.also(func(c *resourcetracker.Config) {
				c.Claim = func(context.Context, []plugins.Node, error) map[string]*resourcetracker.ClaimedError {
					return map[string]*resourcetracker.ClaimedError{nodeUUID: claimed}
				}
			})
		})
		<-s.tracker.Ready()
		guests := func() []resourcetracker.NodeGuests {
			t.Helper()
			got := testproc.Try(s.tracker.Guests(t.Context())).Or(s.t)
			if len(got) != 2 || got[0].Err == nil || !errors.Is(got[0].Err, claimed) || got[1].Node.UUID != second {
				t.Fatalf("Guests: got %+v, want an error for the first node and a list for the second", got)
			}
			return got[1:]
		}
		if got := guests(); got[0].Err != nil || cmp.Diff(named("a", "b"), got[0].Guests) != "" {
			t.Errorf("Guests of the second node: got %+v, want a and b", got)
		}
		driver.set(func(*fakeDriver) { driver.fails = plugins.ErrNotReady })
		if got := guests(); !errors.Is(got[0].Err, plugins.ErrNotReady) ||
			!strings.Contains(got[0].Err.Error(), "asking the driver for its guests") || got[0].Guests != nil {
			t.Errorf("Guests of a driver that is not ready: got %+v, want its error and no guests", got)
		}
		s.placement.set(func(p *fakePlacement) { p.readErr = reportclient.ErrUnavailable })
		if got := guests(); !errors.Is(got[0].Err, reportclient.ErrUnavailable) ||
			!strings.Contains(got[0].Err.Error(), "reading from Placement") {
			t.Errorf("Guests while Placement is down: got %+v, want its error", got)
		}
		driver.set(func(d *fakeDriver) { d.nodes = nil })
		if _, err := s.tracker.Guests(t.Context()); err == nil {
			t.Error("no node was named, and no error")
		}
		plain := start(t)
		<-plain.tracker.Ready()
		testproc.Try(plain.tracker.Guests(t.Context())).ErrorIs(t, plugins.ErrUnsupported, "Guests: %v")
	})
}

// TestGuestsAreRememberedEveryFiveMinutes after a pass that succeeded; that it fails is no failure
// of the pass.
func TestGuestsAreRememberedEveryFiveMinutes(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		driver := &lister{guests: named("a")}
		seen := resourcetracker.OpenSeenGuests(t.TempDir())
		s := start(t, twoNodes, guestsOf(driver), func(s *scene) {
			s.driver.nodes = s.driver.nodes[:1]
			s.also(func(c *resourcetracker.Config) { c.Seen = seen })
		})
		asked := func(want int) {
			t.Helper()
			synctest.Wait()
			driver.mu.Lock()
			defer driver.mu.Unlock()
			if driver.asked != want {
				t.Errorf("asked %d times, want %d", driver.asked, want)
			}
			driver.asked = 0
		}
		begin := time.Now()
		time.Sleep(4*time.Minute + time.Second)
		asked(1)
		driver.set(func(*fakeDriver) { driver.guests = named("b") })
		time.Sleep(time.Minute)
		asked(1)
		got := testproc.Try(seen.GuestsOf(nodeUUID)).Or(s.t)
		want := map[string]resourcetracker.Sighting{"a": {First: begin.UTC(), Gone: begin.Add(5 * time.Minute).UTC()},
			"b": {First: begin.Add(5 * time.Minute).UTC()}}
		if d := cmp.Diff(want, got); d != "" || s.logged("Failed to record the guests") > 0 {
			t.Errorf("(-want +got):\n%s", d)
		}
		driver.set(func(*fakeDriver) { driver.fails = plugins.ErrUnsupported })
		time.Sleep(10 * time.Minute)
		asked(2)
		if n := s.logged("Failed to record the guests"); n != 0 {
			t.Errorf("logged %d times of a driver that cannot list them", n)
		}
		driver.set(func(*fakeDriver) { driver.fails = plugins.ErrNotReady })
		time.Sleep(5 * time.Minute)
		asked(1)
		if n := s.logged("Failed to record the guests"); n != 1 ||
			s.tracker.Status().State != resourcetracker.Reporting {
			t.Errorf("logged %d times, %+v", n, s.tracker.Status())
		}
		driver.set(func(d *fakeDriver) { d.err = plugins.ErrNotReady })
		time.Sleep(10 * time.Minute)
		asked(0)
	})
}
