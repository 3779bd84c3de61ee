// SPDX-License-Identifier: Apache-2.0

package resourcetracker_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/resourcetracker/ownership"
	"github.com/compute-agent/compute-agent/resourcetracker/providerconfig"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestANodeThatIsNoLongerNamedIsShown, once in the log, and nothing of it is touched; and it comes
// back as if nothing had been.
func TestANodeThatIsNoLongerNamedIsShown(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const other = "11111111-0000-4000-8000-000000000002"
	synctest.Test(t, func(t *testing.T) {
		both := []plugins.Node{{Name: "cn1"}, {Name: "cn2", UUID: other}}
		s := start(t, func(s *scene) {
			s.records = ownership.Open(t.TempDir())
			s.placement.tree = &providertree.Tree{}
			must(s, s.placement.tree.Populate(
				[]providertree.Provider{{UUID: nodeUUID, Name: "cn1"}, {UUID: other, Name: "cn2"}}))
			s.driver.nodes = both
		})
		<-s.tracker.Ready()
		writes := s.writes()
		s.driver.set(func(d *fakeDriver) { d.nodes = both[:1] })
		time.Sleep(20 * time.Minute)
		synctest.Wait()
		st := s.tracker.Status()
		if len(st.Nodes) != 2 || st.Nodes[1].State != resourcetracker.Orphaned || st.Nodes[1].Name != "cn2" ||
			st.Nodes[1].Orphaned == "" || st.State != resourcetracker.Reporting {
			t.Errorf("the status: got %+v, want cn2 orphaned with a reason, and the rest reported", st)
		}
		if s.logged("no longer names a node") != 1 || s.writes() != writes || !s.said().Exists(other) {
			t.Errorf("logged %d times, %d writes", s.logged("no longer names a node"), s.writes()-writes)
		}
		// An operator has it removed, and asks for a pass: it is gone at once, not at the next
		// look.
		kept := testproc.Try(s.records.Load(other)).Or(s.t)
		must(s, s.records.Remove(other))
		s.tracker.Refresh("a node was removed")
		synctest.Wait()
		if st := s.tracker.Status(); len(st.Nodes) != 1 {
			t.Errorf("the status after the record was removed: got %+v, want one node", st)
		}
		must(s, s.records.Save(kept))

		s.driver.set(func(d *fakeDriver) { d.nodes = both })
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if st := s.tracker.Status(); len(st.Nodes) != 2 ||
			st.Nodes[1].State != resourcetracker.Reporting || s.writes() != writes {
			t.Errorf("%+v, %d writes", st, s.writes()-writes)
		}
	})
}

// checker is a driver that knows which nodes are gone for good.
type checker struct {
	*fakeDriver
	deleted bool
	fails   error
	asked   int
}

func (c *checker) NodeDeleted(context.Context, plugins.Node) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked++
	return c.deleted, c.fails
}

// remover is a Placement from which nodes can be removed.
type remover struct{ *fakePlacement }

func (r remover) TreeOf(ctx context.Context, uuid string) (*providertree.Tree, error) {
	return r.Tree(ctx, uuid, "")
}

func (r remover) RemoveProvider(_ context.Context, before providertree.Provider) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, err := r.tree.Remove(before.UUID)
	return err
}
func (remover) Forget(string) {}

// TestOrphansAreExamined at once, on request and every five minutes: only one that the driver says
// was removed for good, and that is entirely ours, is deleted. Any other is shown with the reason.
func TestOrphansAreExamined(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, c := range map[string]struct {
		driver    checker
		created   bool // by this agent, says the record
		elsewhere bool
		host      string // another one that reports it
		unknown   error  // why that is not known
		notNamed  bool   // in the host's certificate
		damaged   bool   // the record
		reason    string
		gone      bool
	}{
		"the driver does not say so": {created: true,
			reason: "the driver does not confirm that it was removed for good"},
		"the driver cannot say": {driver: checker{fails: plugins.ErrUnsupported}, created: true,
			reason: "the driver does not confirm that it was removed for good"},
		"the driver does not know": {driver: checker{deleted: true, fails: plugins.ErrNotReady}, created: true,
			reason: "the driver does not know whether it was removed for good: " + plugins.ErrNotReady.Error()},
		"gone, and not ours": {driver: checker{deleted: true},
			reason: "this agent found the node's root provider"},
		"gone, and ours": {driver: checker{deleted: true}, created: true, gone: true},
		"gone, and another host's": {driver: checker{deleted: true}, created: true, host: "h2",
			reason: "host h2 reports it now"},
		"not said, and another host's": {created: true, host: "h2", reason: "host h2 reports it now"},
		"gone, and not in the certificate": {driver: checker{deleted: true}, created: true,
			unknown: resourcetracker.ErrNotNamed, notNamed: true, reason: resourcetracker.ErrNotNamed.Error()},
		"gone, and no cell says": {driver: checker{deleted: true}, created: true,
			unknown: errors.New("no cell"), reason: "the driver says that it was removed for good, but no cell"},
		"not said, and no cell says": {created: true,
			unknown: errors.New("no cell"), reason: "the driver does not confirm that it was removed for good"},
		"another driver of the agent's":  {driver: checker{deleted: true}, created: true, elsewhere: true},
		"a record that cannot be loaded": {driver: checker{deleted: true}, damaged: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				driver := &c.driver
				counted := &counter{}
				dir := t.TempDir()
				s := start(t, twoNodes, func(s *scene) {
					s.records = ownership.Open(dir)
					driver.fakeDriver = s.driver
					s.also(func(config *resourcetracker.Config) {
						config.Driver, config.Placement, config.Observer = driver, remover{s.placement}, counted
						config.HasOtherDriver = func(root string) bool { return c.elsewhere && root == second }
						config.ReportedBy = func(_ context.Context, root string) (string, error) {
							if root != second {
								return "", errors.New("it is asked about " + root)
							}
							return c.host, c.unknown
						}
					})
				})
				time.Sleep(30 * time.Second)
				record := testproc.Try(s.records.Load(second)).Or(s.t)
				record.Created = c.created
				must(s, s.records.Save(record))
				if c.damaged {
					must(s, os.WriteFile(s.records.Path(second), []byte("{"), 0o600))
				}
				s.driver.set(func(d *fakeDriver) { d.nodes = d.nodes[:1] })
				writes := counted.count(resourcetracker.EventWrite, "cn2")
				time.Sleep(time.Minute)
				synctest.Wait()
				nodes := s.tracker.Status().Nodes
				if len(nodes) == 2 && (c.reason == "" || !strings.Contains(nodes[1].Orphaned, c.reason)) ||
					len(nodes) != 2 && c.reason != "" {
					t.Errorf("the nodes: got %+v, want an orphan because %q", nodes, c.reason)
				}
				if len(nodes) == 2 && (nodes[1].ReportedBy != c.host || nodes[1].NotNamed != c.notNamed) {
					t.Errorf("reported by %q, not named: %t", nodes[1].ReportedBy, nodes[1].NotNamed)
				}
				deleted := counted.count(resourcetracker.EventWrite, "cn2") - writes
				if s.said().Exists(second) == c.gone ||
					(s.logged("Deleted a node from Placement", second) == 1) != c.gone || (deleted == 1) != c.gone {
					t.Errorf("gone %v; logged %s", !s.said().Exists(second), s.log)
				}
				if (s.logged("Not all records of former nodes can be read") == 1) != c.damaged {
					t.Errorf("logged %s", s.log)
				}
				if c.reason == "" || !c.created || c.host != "" || c.notNamed {
					return
				}
				for _, step := range []struct {
					wait time.Duration
					want int
				}{{0, 1}, {4 * time.Minute, 1}, {time.Minute, 2}, {4 * time.Minute, 2}, {time.Minute, 3}} {
					time.Sleep(step.wait)
					synctest.Wait()
					driver.mu.Lock()
					if driver.asked != step.want {
						t.Errorf("asked %d times after %v more, want %d", driver.asked, step.wait, step.want)
					}
					driver.mu.Unlock()
				}
				s.tracker.Refresh("a person asks")
				synctest.Wait()
				testproc.Equal(t, driver.asked, 4, "asked %d times after a request")
			})
		})
	}
}

// TestNodeRemoved: NodeRemoved is called once with the uuid of a node that was deleted, after its
// record, and its error is the reason that is shown.
func TestNodeRemoved(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, fails := range map[string]error{"told": nil, "it fails": errors.New("the disk is full")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				driver := &checker{deleted: true}
				var told []string
				s := start(t, twoNodes, func(s *scene) {
					s.records = ownership.Open(t.TempDir())
					driver.fakeDriver = s.driver
					s.also(func(config *resourcetracker.Config) {
						config.Driver, config.Placement = driver, remover{s.placement}
						config.NodeRemoved = func(root string) error {
							told = append(told, root)
							if left, err := s.records.Load(root); left != nil || err != nil {
								t.Errorf("told while its record is there: %+v, %v", left, err)
							}
							return fails
						}
					})
				})
				time.Sleep(30 * time.Second)
				record := testproc.Try(s.records.Load(second)).Or(s.t)
				record.Created = true
				must(s, s.records.Save(record))
				s.driver.set(func(d *fakeDriver) { d.nodes = d.nodes[:1] })
				time.Sleep(time.Minute)
				synctest.Wait()
				if s.said().Exists(second) || !slices.Equal(told, []string{second}) {
					t.Errorf("in Placement: %t, told of %q", s.said().Exists(second), told)
				}
				want := ""
				if fails != nil {
					want = fails.Error()
				}
				shown := ""
				for _, n := range s.tracker.Status().Nodes {
					shown += n.Orphaned
				}
				testproc.Equal(t, shown, want, "the reason is %q")
			})
		})
	}
}

// TestNoLookWithoutOrphans: while the driver names the same nodes, the records are not read.
func TestNoLookWithoutOrphans(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		s := start(t, twoNodes)
		<-s.tracker.Ready()
		must(s, os.WriteFile(s.records.Path(second), []byte("{"), 0o600))
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := s.logged("Not all records of former nodes can be read"); n != 0 {
			t.Errorf("the records were read, logged %d times", n)
		}
	})
}

// TestAnOrphanHasNoEntriesOfProviderYAML: an entry that only it could have matched is reported.
func TestAnOrphanHasNoEntriesOfProviderYAML(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := t.TempDir()
	check(t, os.WriteFile(filepath.Join(dir, "a.yaml"),
		[]byte("meta: {schema_version: '1.0'}\nproviders: [{identification: {name: absent}, traits: {additional: "+
			"[CUSTOM_A]}}]\n"), 0o600))
	config, _, err := providerconfig.Load(dir)
	check(t, err)
	synctest.Test(t, func(t *testing.T) {
		s := start(t, twoNodes, func(s *scene) { s.providerConfig = func() *providerconfig.Config { return config } })
		<-s.tracker.Ready()
		s.driver.set(func(d *fakeDriver) { d.nodes = d.nodes[:1] })
		s.tracker.Refresh("a person asks")
		synctest.Wait()
		nodes := s.tracker.Status().Nodes
		if len(nodes) != 2 || nodes[1].State != resourcetracker.Orphaned || len(nodes[0].Conflicts) != 1 ||
			!strings.Contains(nodes[0].Conflicts[0], "absent") {
			t.Errorf("the nodes: got %+v, want an orphan, and one conflict that names it absent", nodes)
		}
	})
}
