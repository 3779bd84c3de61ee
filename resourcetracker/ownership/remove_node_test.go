// SPDX-License-Identifier: Apache-2.0

package ownership_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker/ownership"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const (
	root  = "aaaaaaaa-0000-4000-8000-000000000001"
	gpu   = "aaaaaaaa-0000-4000-8000-000000000002"
	nic   = "aaaaaaaa-0000-4000-8000-000000000003"
	alice = "99999999-0000-4000-8000-000000000001"
)

var check = testproc.Check

// fakePlacement has one tree; broken is the provider whose DELETE fails.
type fakePlacement struct {
	tree      *providertree.Tree
	consumers map[string]map[string]providertree.Resources
	broken    string
	deleted   []string
	removed   []string
	forgotten bool
	// meanwhile is called when consumers are read, nil: nothing happens then
	meanwhile func()
}

func (p *fakePlacement) TreeOf(_ context.Context, uuid string) (*providertree.Tree, error) {
	if !p.tree.Exists(uuid) {
		return nil, reportclient.ErrNotFound
	}
	return p.tree.Clone(), nil
}

func (p *fakePlacement) ConsumersOf(_ context.Context, uuid string) (map[string]providertree.Resources, error) {
	if p.meanwhile != nil {
		p.meanwhile()
	}
	return p.consumers[uuid], nil
}

func (p *fakePlacement) RemoveProvider(_ context.Context, before providertree.Provider) error {
	now, _ := p.tree.Provider(before.UUID)
	switch {
	case before.UUID == p.broken:
		return reportclient.ErrUnavailable
	case now.Generation != before.Generation:
		return reportclient.ErrConflict
	case len(p.tree.Children(before.UUID)) > 0:
		return reportclient.ErrProviderInUse
	}
	p.deleted = append(p.deleted, now.Name)
	if now.ParentUUID != "" { // a parent's generation goes up with it
		parent, _ := p.tree.Provider(now.ParentUUID)
		if err := p.tree.SetGeneration(now.ParentUUID, parent.Generation+1); err != nil {
			return err
		}
	}
	_, err := p.tree.Remove(before.UUID)
	return err
}

func (p *fakePlacement) Forget(string) { p.forgotten = true }
func (p *fakePlacement) nodeRemoved(uuid string) error {
	p.removed = append(p.removed, uuid)
	return nil
}

// removable is a node with a GPU that this agent created, and its record.
func removable(t *testing.T) (*fakePlacement, *ownership.Record) {
	t.Helper()
	tree := &providertree.Tree{}
	check(t, tree.AddRoot(root, "cn1"))
	check(t, tree.AddChild(root, gpu, "cn1_gpu"))
	for _, uuid := range []string{root, gpu} {
		testproc.Try(tree.SetInventories(uuid, providertree.Inventories{"VCPU": {Total: 8}})).Or(t)
		check(t, tree.SetGeneration(uuid, 3))
	}
	testproc.Try(tree.SetTraits(root, []string{"COMPUTE_NODE"})).Or(t)
	ours := func(name, parent string) ownership.Provider {
		return ownership.Provider{
			Name: name, Parent: parent, Owner: ownership.Driver,
			Traits: map[string]ownership.Owner{"COMPUTE_NODE": ownership.Agent},
			Inventories: map[string]ownership.OwnedInventory{"VCPU": {Owner: ownership.Driver,
				Inventory: providertree.Inventory{Total: 8}.Normalize()}},
		}
	}
	return &fakePlacement{tree: tree}, &ownership.Record{Root: root, Node: "cn1", Driver: "fake", Created: true,
		Providers: map[string]ownership.Provider{root: ours("cn1", ""), gpu: ours("cn1_gpu", root)}}
}

// TestRemoveNodeOnlyIfAllIsOurs lists every blocker; with one, nothing is deleted.
func TestRemoveNodeOnlyIfAllIsOurs(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, c := range map[string]struct {
		change func(*fakePlacement, *ownership.Record) error
		want   []string // each a part of one blocker, and all that there are
	}{
		"all is ours": {},
		"disabled by another client": {change: func(p *fakePlacement, _ *ownership.Record) error {
			_, err := p.tree.AddTraits(root, "COMPUTE_STATUS_DISABLED")
			return err
		}},
		"the root was found, not created": {func(_ *fakePlacement, r *ownership.Record) error {
			r.Created =
				false
			return nil
		}, []string{"did not create it"}},
		"another client's child": {func(p *fakePlacement, _ *ownership.Record) error {
			return p.tree.AddChild(root, nic,
				"nic")
		},
			[]string{"nic (" + nic + "): it was not created by this agent"}},
		"another client's trait": {func(p *fakePlacement, _ *ownership.Record) error {
			_, err := p.tree.AddTraits(gpu, "CUSTOM_GOLD")
			return err
		},
			[]string{"set its trait CUSTOM_GOLD"}},
		"another client's aggregate": {func(p *fakePlacement, _ *ownership.Record) error {
			_, err := p.tree.AddAggregates(root, nic)
			return err
		},
			[]string{"aggregate " + nic}},
		"renamed": {func(_ *fakePlacement, r *ownership.Record) error {
			was := r.Providers[root]
			was.Name = "cn0"
			r.Providers[root] = was
			return nil
		}, []string{"cn1 (" + root + "): this agent named it \"cn0\""}},
		"moved": {func(_ *fakePlacement, r *ownership.Record) error {
			was := r.Providers[gpu]
			was.Parent = nic
			r.Providers[gpu] = was
			return nil
		}, []string{"this agent had it below " + nic + ", and it is below " + root}},
		"another client's inventory": {func(p *fakePlacement, _ *ownership.Record) error {
			_, err := p.tree.SetInventory(root, "CUSTOM_IRON", providertree.Inventory{Total: 1})
			return err
		}, []string{"its inventory of CUSTOM_IRON"}},
		"another agent's amounts": {func(p *fakePlacement, _ *ownership.Record) error {
			_, err := p.tree.SetInventory(gpu, "VCPU", providertree.Inventory{Total: 16})
			return err
		}, []string{"cn1_gpu (" + gpu +
			"): another client, maybe an agent that reports the node now, changed its inventory of VCPU: total " +
			"from 8 to 16"}},
		"amounts that were being written": {change: func(p *fakePlacement, r *ownership.Record) error {
			r.Pending = true
			_, err := p.tree.SetInventory(gpu, "VCPU", providertree.Inventory{Total: 16})
			return err
		}},
		"consumers of two providers": {func(p *fakePlacement, _ *ownership.Record) error {
			p.consumers = map[string]map[string]providertree.Resources{root: {alice: {"VCPU": 2}},
				gpu: {alice: {"VCPU": 1}}}
			return nil
		}, []string{"consumer " + alice + ", resource provider cn1_gpu (" +
			gpu + "): it holds 1 VCPU", "it holds 2 VCPU"}},
	} {
		t.Run(name, func(t *testing.T) {
			p, record := removable(t)
			if c.change != nil {
				check(t, c.change(p, record))
			}
			store := ownership.Open(t.TempDir())
			check(t, store.Save(record))
			_, err := ownership.RemoveNode(t.Context(), p, record, store, p.nodeRemoved)
			left := testproc.Try(store.Load(root)).Or(t)
			if c.want == nil {
				check(t, err)
				if !slices.Equal(p.deleted, []string{"cn1_gpu", "cn1"}) || left != nil || !p.forgotten ||
					!slices.Equal(p.removed, []string{root}) {
					t.Errorf("deleted %q, record %+v, forgotten %t, observed %q",
						p.deleted, left, p.forgotten, p.removed)
				}
				return
			}
			var refused *ownership.RefusedError
			if !errors.As(err, &refused) || len(refused.Blockers) != len(c.want) {
				t.Fatalf("RemoveNode: got %v, want a RefusedError with %d blockers", err, len(c.want))
			}
			for i, part := range c.want {
				if !strings.Contains(refused.Blockers[i].String(), part) {
					t.Errorf("%s, want %q", refused.Blockers[i], part)
				}
			}
			if len(p.deleted) > 0 || left == nil {
				t.Errorf("deleted %q, record %+v", p.deleted, left)
			}
		})
	}
}

// TestRemoveNodeWithoutRemoved: nil for the function that is called at the end calls none.
func TestRemoveNodeWithoutRemoved(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	p, record := removable(t)
	store := ownership.Open(t.TempDir())
	check(t, store.Save(record))
	deleted, err := ownership.RemoveNode(t.Context(), p, record, store, nil)
	left := testproc.Try(store.Load(root)).Or(t)
	if err != nil || len(deleted) != 2 || left != nil {
		t.Errorf("%v, deleted %d providers, record %+v", err, len(deleted), left)
	}
}

// TestRemoveNodeStopsAtAConflict: another client wrote to the first provider to delete after it was
// checked, which no deletion explains.
func TestRemoveNodeStopsAtAConflict(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	p, record := removable(t)
	p.meanwhile = func() { check(t, p.tree.SetGeneration(gpu, 4)) }
	store := ownership.Open(t.TempDir())
	check(t, store.Save(record))
	_, err := ownership.RemoveNode(t.Context(), p, record, store, p.nodeRemoved)
	if !errors.Is(err, reportclient.ErrConflict) || len(p.deleted) > 0 {
		t.Errorf("%v, deleted %q", err, p.deleted)
	}
}

// TestRemoveNodeResumesAfterFailure keeps the record of a node that is half deleted, and the next
// call finishes it.
func TestRemoveNodeResumesAfterFailure(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	p, record := removable(t)
	p.broken = root
	store := ownership.Open(t.TempDir())
	check(t, store.Save(record))
	_, err := ownership.RemoveNode(t.Context(), p, record, store, p.nodeRemoved)
	if !errors.Is(err, reportclient.ErrUnavailable) {
		t.Fatalf("RemoveNode while Placement is down: got %v, want ErrUnavailable", err)
	}
	if left, _ := store.Load(root); left == nil || len(p.removed) > 0 {
		t.Error("the record was removed although the node is there")
	}
	p.broken = ""
	for range 2 { // the second finds nothing
		testproc.Try(ownership.RemoveNode(t.Context(), p, record, store, p.nodeRemoved)).Or(t)
	}
	if left, _ := store.Load(root); left != nil || !slices.Equal(p.deleted, []string{"cn1_gpu", "cn1"}) {
		t.Errorf("deleted %q, record %+v", p.deleted, left)
	}
}
