// SPDX-License-Identifier: Apache-2.0

package resourcetracker_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// moveVCPUs is a driver that moves VCPUs, too, although the root keeps its own.
func moveVCPUs(tree *providertree.Tree, a providertree.Allocations) (providertree.Allocations, error) {
	after, err := moveVGPUs(tree, a)
	if after != nil {
		_, err = tree.SetInventory(gpu, "VCPU", providertree.Inventory{Total: 8})
		delete(after[guest1].Resources, nodeUUID)
		after[guest1].Resources[gpu]["VCPU"] = 2
	}
	return after, err
}

// moveToAnother is a driver that moves one of the guests to another GPU.
func moveToAnother(tree *providertree.Tree, a providertree.Allocations) (providertree.Allocations, error) {
	after, err := moveVGPUs(tree, a)
	if after != nil {
		err = tree.AddChild(nodeUUID, guest2, "cn1_gpu_2")
		_, err2 := tree.SetInventory(guest2, "VGPU", providertree.Inventory{Total: 4})
		err = errors.Join(err, err2)
		after[guest2].Resources[guest2] = after[guest2].Resources[gpu]
		delete(after[guest2].Resources, gpu)
	}
	return after, err
}

// TestReshapeWaitsForTheListOfGuests: while the driver cannot say where its guests are, nothing is
// moved; one that never can is reshaped without.
func TestReshapeWaitsForTheListOfGuests(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		driver := &lister{fails: &plugins.NotReady{Reason: "the daemon starts"}}
		s := start(t, vgpus, guestsOf(driver))
		<-s.tracker.Ready()
		if n := s.tracker.Status().Nodes[0]; n.State != resourcetracker.Degraded ||
			!strings.Contains(n.Error, "to compare the reshape with them") ||
			!strings.Contains(n.Error, "the daemon starts") {
			t.Errorf("the node without a list of guests: got %+v, want the reshape to wait for it", n)
		}
		s.checkLayout(oldLayout)
		driver.set(func(*fakeDriver) { driver.fails = plugins.ErrUnsupported })
		time.Sleep(time.Minute)
		synctest.Wait()
		s.checkLayout(newLayout)
		if n := s.tracker.Status().Nodes[0]; n.State != resourcetracker.Reporting {
			t.Errorf("the node of a driver without a list of guests: got %+v, want it reported", n)
		}
	})
}

// comparison is a [resourcetracker.Config.Compare] that a test sets.
type comparison struct {
	mu        sync.Mutex
	differing []string
	err       error
	asked     int
}

func (c *comparison) compare(context.Context, plugins.Node, []plugins.Guest) ([]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	return c.differing, c.err
}

func (c *comparison) set(differing []string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.differing, c.err = differing, err
}

func (c *comparison) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked
}

// TestAllocationsAreComparedAfterAReshape: until they agree with the guests, over restarts, and
// never again then.
func TestAllocationsAreComparedAfterAReshape(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		differ := []string{"web: allocated 0 VGPU"}
		c := &comparison{differing: differ}
		with := func(s *scene) {
			guestsOf(&lister{guests: []plugins.Guest{{UUID: guest1}, {UUID: guest2}}})(s)
			s.also(func(config *resourcetracker.Config) {
				config.Seen, config.Compare, config.Rand =
					resourcetracker.OpenSeenGuests(dir), c.compare, func() float64 { return 0 }
			})
		}
		check := func(s *scene, differing []string, asked, logged int) {
			t.Helper()
			synctest.Wait()
			testproc.Same(t, cmp.Diff(differing, s.tracker.Status().Nodes[0].Differing))
			testproc.Equal(t, c.count(), asked, "compared %d times")
			testproc.Equal(t, s.logged("guests hold other allocations than the driver lists"), logged,
				"logged %d times")
		}
		s := start(t, vgpus, with)
		<-s.tracker.Ready()
		s.checkLayout(newLayout)
		check(s, differ, 1, 1)
		time.Sleep(5*time.Minute + time.Second)
		check(s, differ, 2, 1)
		differ = append(slices.Clone(differ), "db: allocated 1 VGPU")
		c.set(differ, nil)
		time.Sleep(5 * time.Minute)
		check(s, differ, 3, 2)
		testproc.NoError(t, s.end())

		again := start(t, vgpus, with, func(next *scene) {
			next.placement, next.journal = s.placement, s.journal
		})
		<-again.tracker.Ready()
		check(again, differ, 4, 1)
		c.set(differ, errors.New("Placement is down"))
		time.Sleep(5*time.Minute + time.Second)
		check(again, differ, 5, 1)
		c.set(nil, nil)
		time.Sleep(5 * time.Minute)
		check(again, nil, 6, 1)
		time.Sleep(time.Hour)
		check(again, nil, 6, 1)
		testproc.NoError(t, again.end())

		last := start(t, vgpus, with, func(next *scene) {
			next.placement, next.journal = s.placement, s.journal
		})
		<-last.tracker.Ready()
		time.Sleep(time.Hour)
		check(last, nil, 6, 0)
	})
}
