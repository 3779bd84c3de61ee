// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"github.com/compute-agent/compute-agent/plugins"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
	"github.com/compute-agent/compute-agent/providertree"
)

// reshaped is a reshape that was tried once and that many checks look at.
type reshaped struct {
	source string // describes where the tree came from
	real   bool   // a driver made the tree
	before *providertree.Tree
	given  providertree.Allocations
	// without is the response to before without allocations, or its error.
	without      *driverv1.UpdateProviderTreeResponse
	withoutError error
	// why no reshape could be tried. Then only upgraded is set, if a former release's tree
	// needs none.
	why      error
	upgraded *providertree.Tree

	reply       *driverv1.UpdateProviderTreeResponse // with allocations
	replyError  error
	after       *providertree.Tree
	allocations providertree.Allocations
	renames     plugins.ClassRenames
}

// reshape tries a reshape once and returns the same one each time.
func (b *Bench) reshape(ctx context.Context) (*baseline, *proc, *reshaped, error) {
	base, p, err := b.base(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	if b.reshaped == nil {
		if b.reshaped, err = b.tryReshape(ctx, base, p); err != nil { // reported once
			b.reshaped = &reshaped{why: notRun("there is no tree to reshape from; see reshape/needed")}
			return nil, nil, nil, err
		}
	}
	return base, p, b.reshaped, b.reshaped.why
}

// done is reshape for checks that look at the result.
func (b *Bench) done(ctx context.Context) (*baseline, *proc, *reshaped, error) {
	base, p, r, err := b.reshape(ctx)
	switch {
	case err != nil:
	case kind(r.replyError) == protocol.KindReshapeFailed:
		err = r.unmoved()
	case r.replyError != nil || r.after == nil:
		err = notRun("the driver makes no reshape; see reshape/done")
	}
	return base, p, r, err
}

// unmoved says that the driver moved no consumer that the suite made up. It may be right: it may
// move only guests whose place it knows, and those are for reshape/guests.
func (r *reshaped) unmoved() error {
	return notRun("the driver moves no consumers that the suite made up (reshape/guests tries guests that "+
		"it lists): %s", describe(r.replyError))
}

func (b *Bench) tryReshape(ctx context.Context, base *baseline, p *proc) (*reshaped, error) {
	r := &reshaped{}
	var err error
	if r.before, r.source, r.real, err = b.formerTree(ctx, base); err != nil {
		return nil, err
	}
	if r.before == nil {
		r.why = notRun("the driver's tree is flat, and no former release is given: there is nothing to reshape from")
		return r, nil
	}
	r.given = allocate(r.before, base.own, base.root)
	if err := addExternalShare(r.before, base.root, base.node, r.given); err != nil {
		return nil, err
	}
	r.without, r.withoutError = p.update(ctx, r.before, base.node, nil)
	if b.former != nil {
		if r.upgraded = r.upgrade(base.root); r.upgraded != nil {
			r.why = notRun("%s needs no reshape", r.source)
			return r, nil
		}
	}
	if !r.real && kind(r.withoutError) != protocol.KindReshapeNeeded && !r.movedSilently(base.root) {
		r.why = notRun("the driver does not reshape %s; --former (Options.FormerPath) takes the binary of the "+
			"last release", r.source)
		return r, nil
	}
	r.reply, r.replyError = p.update(ctx, r.before, base.node, r.given)
	if !r.real && kind(r.replyError) == protocol.KindReshapeFailed &&
		len(protocol.FailureOf(r.replyError).Violations) == 0 {
		r.why = notRun("%s is not a former layout of the driver (%s); --former (Options.FormerPath) takes the "+
			"binary of the last release", r.source, describe(r.replyError))
	}
	if r.replyError != nil {
		return r, nil //nolint:nilerr // the error is the result
	}
	r.renames = r.reply.GetClassRenames()
	if r.after, err = protocol.ToTree(r.reply.GetTree()); err != nil {
		r.after, r.replyError = nil, fmt.Errorf("its tree is invalid: %w", err)
		return r, nil // the error is the result
	}
	if r.allocations, err = protocol.ToAllocations(r.reply.GetAllocations()); err != nil {
		r.after, r.replyError = nil, fmt.Errorf("its allocations are invalid: %w", err)
	}
	return r, nil
}

// movedSilently reports whether the response without allocations lacks inventory that the tree had.
func (r *reshaped) movedSilently(root string) bool {
	if r.withoutError != nil {
		return false
	}
	after, err := protocol.ToTree(r.without.GetTree())
	if err != nil {
		return false
	}
	return len(lostInventory(r.before, after, root)) > 0
}

// lostInventory lists the inventory that the node's tree had and no longer has.
func lostInventory(before, after *providertree.Tree, root string) []string {
	var out []string
	for _, id := range before.Subtree(root) {
		p, _ := before.Provider(id)
		for _, class := range sortedKeys(p.Inventories) {
			if _, still := after.Inventory(id, class); !still {
				out = append(out, fmt.Sprintf("%s lost its %s", p.Name, class))
			}
		}
	}
	return out
}

// addExternalShare adds an external provider on which the consumers have allocations too.
func addExternalShare(tree *providertree.Tree, root, node string, allocations providertree.Allocations) error {
	id := uuid.NewString()
	e := &editor{tree: tree}
	e.child(root, id, node+externalName)
	e.inventory(id, externalClass, 100)
	e.setError(tree.SetGeneration(id, 4))
	for _, c := range allocations {
		c.Resources[id] = map[string]int64{externalClass: 5}
	}
	return e.err
}

// sent describes the request for the reshape.
func (r *reshaped) sent(base *baseline, allocations providertree.Allocations) string {
	return sentUpdate(r.before, base.node, allocations) + " (" + r.source + ")"
}

// sameAnswer reports whether two responses have the same allocations.
func sameAnswer(a, b *driverv1.UpdateProviderTreeResponse) bool {
	return proto.Equal(a.GetAllocations(), b.GetAllocations())
}
