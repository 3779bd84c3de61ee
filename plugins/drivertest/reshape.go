// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"google.golang.org/protobuf/proto"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/plugins/internal/protocol"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/providertree"
)

// reshaped is a reshape that was tried once, for many checks to look at.
type reshaped struct {
	source string // where the tree came from, in words
	real   bool   // a driver made the tree
	before *providertree.Tree
	given  providertree.Allocations
	// without is the answer to before without allocations, or its error.
	without      *driverv1.UpdateProviderTreeResponse
	withoutError error
	// why no reshape could be tried; then all that follows is empty, but for what became of a
	// former release's tree that needs none.
	why      error
	upgraded *providertree.Tree

	reply       *driverv1.UpdateProviderTreeResponse // with allocations
	replyError  error
	after       *providertree.Tree
	allocations providertree.Allocations
	renames     plugins.ClassRenames
}

// reshape tries one: once.
func (b *bench) reshape(ctx context.Context) (*baseline, *proc, *reshaped, error) {
	base, p, err := b.base(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	if b.reshaped == nil {
		if b.reshaped, err = b.tryReshape(ctx, base, p); err != nil { // told once
			b.reshaped = &reshaped{why: notApplicable("there is no tree to reshape from; see reshape/needed")}
			return nil, nil, nil, err
		}
	}
	return base, p, b.reshaped, b.reshaped.why
}

// done is reshape for checks that look at what came out.
func (b *bench) done(ctx context.Context) (*baseline, *proc, *reshaped, error) {
	base, p, r, err := b.reshape(ctx)
	switch {
	case err != nil:
	case kind(r.replyError) == protocol.KindReshapeFailed:
		err = notApplicable("the driver answers %s: consumers that it does not know cannot be moved", said(r.replyError))
	case r.replyError != nil || r.after == nil:
		err = notApplicable("the driver makes no reshape; see reshape/done")
	}
	return base, p, r, err
}

func (b *bench) tryReshape(ctx context.Context, base *baseline, p *proc) (*reshaped, error) {
	r := &reshaped{}
	var err error
	if r.before, r.source, r.real, err = b.formerTree(ctx, base); err != nil {
		return nil, err
	}
	if r.before == nil {
		r.why = notApplicable("the driver's tree is flat, and no former release is given: there is nothing to reshape from")
		return r, nil
	}
	r.given = allocate(r.before, base.own, base.root)
	if err := strangersShare(r.before, base.root, base.node, r.given); err != nil {
		return nil, err
	}
	r.without, r.withoutError = p.update(ctx, r.before, base.node, nil)
	if b.former != nil {
		if r.upgraded = r.upgrade(base.root); r.upgraded != nil {
			r.why = notApplicable("%s needs no reshape", r.source)
			return r, nil
		}
	}
	if !r.real && kind(r.withoutError) != protocol.KindReshapeNeeded && !r.movedSilently(base.root) {
		r.why = notApplicable("the driver does not reshape %s; --former (Options.FormerPath) takes the binary of the last release", r.source)
		return r, nil
	}
	r.reply, r.replyError = p.update(ctx, r.before, base.node, r.given)
	if !r.real && kind(r.replyError) == protocol.KindReshapeFailed && len(protocol.FailureOf(r.replyError).Offenders) == 0 {
		r.why = notApplicable("%s is no former shape of the driver's (%s); --former (Options.FormerPath) takes the binary of the last release", r.source, said(r.replyError))
	}
	if r.replyError != nil {
		return r, nil //nolint:nilerr // it is what came of it
	}
	r.renames = r.reply.GetClassRenames()
	if r.after, err = protocol.ToTree(r.reply.GetTree()); err != nil {
		r.after, r.replyError = nil, fmt.Errorf("its tree cannot be used: %w", err)
		return r, nil //nolint:nilerr // it is what came of it
	}
	if r.allocations, err = protocol.ToAllocations(r.reply.GetAllocations()); err != nil {
		r.after, r.replyError = nil, fmt.Errorf("its allocations cannot be used: %w", err)
	}
	return r, nil
}

// movedSilently reports whether the answer without allocations lacks inventory that the tree had.
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

// lostInventory lists what the node's tree had and has no more.
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

// strangersShare adds a provider of somebody else's, of which the consumers have something too.
func strangersShare(tree *providertree.Tree, root, node string, allocations providertree.Allocations) error {
	id := uuid.NewString()
	e := &editor{tree: tree}
	e.child(root, id, node+":somebody-else")
	e.inventory(id, strangeClass, 100)
	e.note(tree.SetGeneration(id, 4))
	for _, c := range allocations {
		c.Resources[id] = map[string]int64{strangeClass: 5}
	}
	return e.err
}

// sent is what the reshape was asked for, in words.
func (r *reshaped) sent(base *baseline, allocations providertree.Allocations) string {
	return sentUpdate(r.before, base.node, allocations) + " (" + r.source + ")"
}

// sameAnswer reports whether two answers are the same.
func sameAnswer(a, b *driverv1.UpdateProviderTreeResponse) bool {
	return proto.Equal(a.GetAllocations(), b.GetAllocations())
}
