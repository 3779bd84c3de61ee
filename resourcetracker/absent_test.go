// SPDX-License-Identifier: Apache-2.0

package resourcetracker_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/resourcetracker/ownership"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// absent is a driver that does not even name its nodes, until it is back.
type absent struct {
	*fakeDriver
	err error
}

func (a *absent) AvailableNodes(ctx context.Context) ([]plugins.Node, error) {
	a.mu.Lock()
	err := a.err
	a.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return a.fakeDriver.AvailableNodes(ctx)
}

// TestUnanswered: what counts as an answer about a node, and when it was.
func TestUnanswered(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, c := range map[string]struct {
		err        error
		unanswered bool
	}{
		"not ready":            {plugins.ErrNotReady, true},
		"a crash":              {errors.New("the process has ended"), true},
		"the deadline":         {context.DeadlineExceeded, true},
		"a reshape is needed":  {plugins.ErrReshapeNeeded, false},
		"a reshape is refused": {&plugins.ReshapeFailed{Reason: "no capacity"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := start(t, shared)
				<-s.tracker.Ready()
				first := s.tracker.Status().Nodes[0]
				if first.Unanswered || !first.LastAnswer.Equal(time.Now()) {
					t.Errorf("after the first pass: %+v", first)
				}
				s.driver.set(func(d *fakeDriver) { d.err = c.err })
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				n := s.tracker.Status().Nodes[0]
				if n.Unanswered != c.unanswered || n.LastAnswer.Equal(first.LastAnswer) != c.unanswered ||
					n.State != resourcetracker.Degraded {
					t.Errorf("the node: got %+v, want it degraded and unanswered: %v", n, c.unanswered)
				}
				s.driver.set(func(d *fakeDriver) { d.err = nil })
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				if n := s.tracker.Status().Nodes[0]; n.Unanswered || time.Since(n.LastAnswer) > 2*time.Minute {
					t.Errorf("after it is back: %+v", n)
				}
			})
		})
	}
}

// TestPlacementAwayIsNoSilence of the driver.
func TestPlacementAwayIsNoSilence(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		s := start(t, shared)
		<-s.tracker.Ready()
		s.placement.set(func(p *fakePlacement) { p.readErr = errors.New("connection refused") })
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := s.tracker.Status().Nodes[0]; n.Unanswered || n.State != resourcetracker.Degraded {
			t.Errorf("the node while Placement is down: got %+v, want it degraded and not unanswered", n)
		}
	})
}

// TestNodesOfBeforeThatCannotBeRead are logged, and the others are known.
func TestNodesOfBeforeThatCannotBeRead(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, damaged := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			dir := t.TempDir()
			s := start(t, func(s *scene) {
				s.records = ownership.Open(dir)
				for _, root := range []string{nodeUUID, second} {
					must(s, s.records.Save(&ownership.Record{Root: root, Node: "cn" + root[35:], Driver: "fake"}))
				}
				if damaged {
					must(s, os.WriteFile(s.records.Path(second), []byte("{"), 0o600))
				}
				s.driver.nodes = nil
				s.config = func(c *resourcetracker.Config) { c.Driver = &absent{s.driver, errors.New("down")} }
			})
			<-s.tracker.Ready()
			nodes, logged := s.tracker.Status().Nodes, s.logged("Not all records of former nodes can be read")
			if damaged && (len(nodes) != 1 || logged != 1) || !damaged && (len(nodes) != 2 || logged != 0) {
				t.Errorf("damaged %v: %+v, logged %d times", damaged, nodes, logged)
			}
		})
	}
}

// TestNodesOfBefore: a driver that cannot name its nodes after a restart of the agent still has
// those that it had, so that they can be disabled; another driver's are not its own.
func TestNodesOfBefore(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s := start(t, shared, func(s *scene) { s.records = ownership.Open(dir) })
		<-s.tracker.Ready()
		must(s, s.end())
		writes := s.writes()
		driver := &absent{s.driver, errors.New("driver fake is unavailable")}
		for _, name := range []string{"another", "fake"} {
			tracker := resourcetracker.New(resourcetracker.Config{
				Name: name, Driver: driver, Placement: s.placement, Identity: nodeUUID, Logger: zerolog.Nop(),
				Records: ownership.Open(dir),
				Timings: resourcetracker.Timings{Interval: time.Minute, PassDeadline: 30 * time.Second,
					BackoffMin: time.Second, BackoffMax: 2 * time.Minute},
				Disabled: func(node plugins.Node) (string, bool) { return "gone", node.Name == "cn1" },
			})
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- tracker.Run(ctx) }()
			<-tracker.Ready()
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			nodes := tracker.Status().Nodes
			if name == "another" {
				if len(nodes) != 0 || s.writes() != writes {
					t.Errorf("another driver has %+v, %d writes", nodes, s.writes()-writes)
				}
			} else {
				if len(nodes) != 1 || nodes[0].UUID != nodeUUID || !nodes[0].Unanswered ||
					nodes[0].State != resourcetracker.Degraded {
					t.Errorf("the nodes of the former run: got %+v, want one, degraded and unanswered", nodes)
				}
				if s.writes() != writes+1 ||
					!s.said().HasTraits(nodeUUID, resourcetracker.TraitStatusDisabled,
						resourcetracker.TraitComputeNode) {
					t.Errorf("%d writes", s.writes()-writes)
				}
				var inventory providertree.Inventory
				if inventory, _ = s.said().Inventory(nodeUUID, "VCPU"); inventory.Total != 8 {
					t.Errorf("the inventory is %+v", inventory)
				}
				driver.set(func(*fakeDriver) { driver.err = nil })
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				if n := tracker.Status().Nodes; len(n) != 1 || n[0].State != resourcetracker.Reporting ||
					n[0].Unanswered || s.writes() != writes+1 {
					t.Errorf("after it is back: %+v, %d writes", n, s.writes()-writes)
				}
			}
			cancel()
			must(s, <-ended)
		}
	})
}
