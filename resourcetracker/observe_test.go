// SPDX-License-Identifier: Apache-2.0

package resourcetracker_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// counter is an observer that keeps what it receives.
type counter struct {
	mu     sync.Mutex
	steps  []string
	counts map[string]int
}

func (c *counter) Begin(
	ctx context.Context, step resourcetracker.Step, driver, node string,
) (context.Context, func(error)) {
	return ctx, func(err error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.steps = append(c.steps, fmt.Sprint(step, " ", driver, " ", node, " ", err != nil))
	}
}

func (c *counter) Count(event resourcetracker.Event, _, node string, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = map[string]int{}
	}
	c.counts[fmt.Sprint(event, " ", node)] += n
}

func (c *counter) count(event resourcetracker.Event, node string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.counts[fmt.Sprint(event, " ", node)]
}

// TestWhatAnObserverReceives: the steps of a pass as they end, with their failures, and events that
// happened, and no others.
func TestWhatAnObserverReceives(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		c := &counter{}
		s := start(t, func(s *scene) { s.config = func(config *resourcetracker.Config) { config.Observer = c } })
		<-s.tracker.Ready()
		expect := func(what string, steps []string, counts map[string]int) {
			t.Helper()
			synctest.Wait()
			c.mu.Lock()
			defer c.mu.Unlock()
			testproc.Samef(t, cmp.Diff(steps, c.steps)+cmp.Diff(counts, c.counts), "%s", what)
			c.steps, c.counts = nil, nil
		}
		whole := []string{"read fake cn1 false", "driver fake cn1 false", "guard fake cn1 false",
			"apply fake cn1 false", "pass fake cn1 false"}
		expect("the first pass", whole, map[string]int{"write cn1": 3})
		s.tracker.Refresh("a person asks")
		expect("a pass without a change", whole, nil)
		s.placement.set(func(p *fakePlacement) {
			testproc.Try(p.tree.RemoveTraits(nodeUUID, resourcetracker.TraitComputeNode)).Or(s.t)
		})
		s.tracker.Refresh("a person asks")
		expect("another client changed a trait", whole, map[string]int{"write cn1": 1, "drift cn1": 1})
		s.driver.set(func(d *fakeDriver) { d.err = errors.New("the process has ended") })
		s.tracker.Refresh("a person asks")
		expect("the driver fails", []string{"read fake cn1 false", "driver fake cn1 true", "pass fake cn1 true"}, nil)
		s.driver.set(func(d *fakeDriver) { d.err, d.vcpus = nil, 9 })
		s.placement.set(func(p *fakePlacement) { p.applyErr = []error{reportclient.ErrConflict} })
		s.tracker.Refresh("a person asks")
		synctest.Wait()
		<-s.tracker.Ready()
		must(s, s.end())
		expect("a conflict", append([]string{"read fake cn1 false", "driver fake cn1 false", "guard fake cn1 false",
			"apply fake cn1 true"}, whole...), map[string]int{"write cn1": 1, "conflict cn1": 1})
	})
}
