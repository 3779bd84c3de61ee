// SPDX-License-Identifier: Apache-2.0

package reportclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/providertree"
)

// Apply carries out a plan for the node whose root is given. An operation that is refused stops
// those that build upon it and no others; a Placement that is unavailable, or refuses our
// credentials, stops the rest.
//
// Writes that succeed also change the cached tree, so that the next Tree costs nothing. The next
// Tree reads the providers again of which a write failed or had no answer. The error is an
// [*ApplyError] with every cause.
//
// If Placement does not admit some inventories or traits of a provider to this host
// ([ErrNotAdmitted]), Apply writes the others: inventory that shrank must not be allocated any
// more, and what an operator has admitted does not wait for the rest.
//
// A reshape that did not happen stops everything after it: see [ErrConflict] and
// [ErrReshapeRefused]. If its answer gets lost, Apply compares and goes on if it happened. It calls
// the configuration's ReshapeLog before and after.
//
// Cost: one request per operation, less those for a class or trait that is known to exist; one
// more for each 20 classes or kinds of traits of an operation that Placement does not admit, at
// most seven.
func (c *Client) Apply(ctx context.Context, root string, plan Plan) error {
	if plan.Empty() {
		return nil
	}
	n := c.node(root)
	n.mu.Lock()
	defer n.mu.Unlock()
	run := &run{client: c, root: root, node: n, plan: plan, failed: map[string]error{}, symbols: map[string]error{},
		generation: map[string]int64{}}
	for p := range plan.desired.All() {
		run.generation[p.UUID] = p.Generation
	}
	run.learnGenerations()
	result := &ApplyError{}
	for i, op := range plan.Operations {
		if plan.Progress != nil {
			plan.Progress(i)
		}
		if cause := run.blocked(op); cause != nil {
			run.skipDependents(op, cause)
			result.Failed = append(result.Failed,
				&OperationError{Operation: op, Provider: op.Provider, Err: cause, Skipped: true})
			continue
		}
		if err := run.do(ctx, op); err != nil {
			run.noteFailure(op, err)
			result.Failed = append(result.Failed, &OperationError{Operation: op, Provider: op.Provider, Err: err})
			continue
		}
		result.Done++
	}
	if n.tree != nil {
		n.publish()
	}
	if len(result.Failed) > 0 {
		return result
	}
	return nil
}

// run is one plan being applied.
type run struct {
	client     *Client
	root       string
	node       *node
	plan       Plan
	generation map[string]int64 // by provider: what the next write must carry
	failed     map[string]error // providers whose later operations are pointless
	symbols    map[string]error // classes and traits that could not be made
	stopped    error            // why nothing else is tried
}

// learnGenerations takes those of a reshape's providers: some of them are not in the desired tree
// any more.
func (r *run) learnGenerations() {
	for _, op := range r.plan.Operations {
		if op.Kind != ReshapeTree {
			continue
		}
		for _, p := range op.Reshape.Providers {
			if p.Generation != providertree.NoGeneration {
				r.generation[p.UUID] = p.Generation
			}
		}
	}
}

// blocked gives the reason why an operation need not be tried.
func (r *run) blocked(op Operation) error {
	if r.stopped != nil {
		return r.stopped
	}
	if err := r.failed[op.UUID]; err != nil {
		return err
	}
	if op.Kind == CreateProvider || op.Kind == UpdateProvider {
		if err := r.failed[op.Parent]; err != nil {
			return err
		}
	}
	for class := range op.Inventories {
		if err := r.symbols[class]; err != nil {
			return err
		}
	}
	for _, trait := range op.Traits {
		if err := r.symbols[trait]; err != nil {
			return err
		}
	}
	if op.Reshape != nil {
		return r.blockedReshape(op.Reshape)
	}
	return nil
}

// noteFailure notes what a failed request means for what is known of Placement and for the
// remaining operations.
func (r *run) noteFailure(op Operation, err error) {
	if op.UUID != "" {
		r.node.markStale(op.UUID)
	}
	if errors.Is(err, ErrInvalid) {
		r.client.forgetSymbols(op) // another client may have deleted it
	}
	r.skipDependents(op, err)
}

// skipDependents notes which operations to come are pointless after one that did not happen.
func (r *run) skipDependents(op Operation, err error) {
	if errors.Is(err, ErrUnavailable) || errors.Is(err, ErrRefused) || errors.Is(err, context.Canceled) ||
		errors.Is(err, context.DeadlineExceeded) {
		r.stopped = err
	}
	switch op.Kind {
	case ReshapeTree:
		r.stopped = err // what follows a reshape is for the new layout
	case EnsureClass, EnsureTrait:
		r.symbols[op.Symbol] = err
	case DeleteProvider:
		if op.Parent != "" && !r.plan.desired.Exists(op.Parent) {
			r.failed[op.Parent] = err // a parent with a child cannot go either
		}
	case CreateProvider, UpdateProvider:
		r.failed[op.UUID] = err
	default:
		if !changesNothing(err) {
			r.failed[op.UUID] = err // the generation may be wrong
		}
	}
}

// do makes the request of one operation and keeps what the answer says.
func (r *run) do(ctx context.Context, op Operation) error {
	path := "/resource_providers/" + op.UUID
	switch op.Kind {
	case EnsureClass:
		return r.ensure(ctx, "/resource_classes/"+op.Symbol, op.Symbol)
	case EnsureTrait:
		return r.ensure(ctx, "/traits/"+op.Symbol, op.Symbol)
	case CreateProvider:
		return r.create(ctx, op)
	case UpdateProvider:
		return r.update(ctx, op, path)
	case DeleteProvider:
		return r.delete(ctx, op, path)
	case SetInventories:
		return r.setInventories(ctx, op, path+"/inventories")
	case SetAggregates:
		if err := r.checkAggregates(ctx, op, path+"/aggregates"); err != nil {
			return err
		}
		generation := r.generation[op.UUID]
		body := wire.AggregateList{Aggregates: notNil(op.Aggregates), Generation: &generation}
		var out wire.AggregateList
		if err := r.client.placement.Do(ctx, http.MethodPut, path+"/aggregates", body, &out); err != nil {
			return err
		}
		if out.Generation == nil {
			return missingGeneration(http.MethodPut, path+"/aggregates")
		}
		r.cache(op, *out.Generation,
			func(t *providertree.Tree) (bool, error) { return t.SetAggregates(op.UUID, op.Aggregates) })
		return nil
	case SetTraits:
		return r.setTraits(ctx, op, path+"/traits")
	case ReshapeTree:
		return r.reshape(ctx, op)
	}
	return fmt.Errorf("operation of unknown kind %d", op.Kind)
}

// ensure creates a custom class or trait, once in the life of this client.
func (r *run) ensure(ctx context.Context, path, symbol string) error {
	c := r.client
	c.mu.Lock()
	known := c.ensured[symbol]
	c.mu.Unlock()
	if known {
		return nil
	}
	if err := c.placement.Do(ctx, http.MethodPut, path, nil, nil); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ensured[symbol] = true
	return nil
}

// forgetSymbols forgets that the custom classes and traits of an operation exist.
func (c *Client) forgetSymbols(op Operation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for class := range op.Inventories {
		delete(c.ensured, class)
	}
	if op.Reshape != nil {
		for _, p := range op.Reshape.Providers {
			for class := range p.After {
				delete(c.ensured, class)
			}
		}
	}
	for _, trait := range op.Traits {
		delete(c.ensured, trait)
	}
}

func (r *run) create(ctx context.Context, op Operation) error {
	body := wire.ProviderCreate{UUID: op.UUID, Name: op.Provider, Parent: op.Parent}
	var out wire.ResourceProvider
	if err := r.client.placement.Do(ctx, http.MethodPost, "/resource_providers", body, &out); err != nil {
		return err
	}
	r.cache(op, out.Generation, func(t *providertree.Tree) (bool, error) {
		if t.Exists(op.UUID) { // the root of a new node is in the tree before it is in Placement
			return false, nil
		}
		if op.Parent == "" {
			return true, t.AddRoot(op.UUID, op.Provider)
		}
		return true, t.AddChild(op.Parent, op.UUID, op.Provider)
	})
	return nil
}

func (r *run) update(ctx context.Context, op Operation, path string) error {
	body := wire.ProviderUpdate{Name: op.Provider,
		Parent: wire.ParentChange{Set: op.before().ParentUUID != op.Parent, UUID: op.Parent}}
	var out wire.ResourceProvider
	if err := r.client.placement.Do(ctx, http.MethodPut, path, body, &out); err != nil {
		return err
	}
	r.cache(op, out.Generation, func(t *providertree.Tree) (bool, error) {
		renamed, err := t.Rename(op.UUID, op.Provider)
		if err != nil {
			return renamed, err
		}
		return t.Move(op.UUID, op.Parent)
	})
	return nil
}

func (r *run) delete(ctx context.Context, op Operation, path string) error {
	err := r.client.placement.Do(ctx, http.MethodDelete, path, nil, placementclient.NoContent{})
	if err != nil && !errors.Is(err, ErrNotFound) { // already deleted
		return err
	}
	if r.node.tree != nil && r.node.tree.Exists(op.UUID) {
		_, err = r.node.tree.Remove(op.UUID)
		return err
	}
	return nil
}

// checkAggregates makes sure that the aggregates are what the plan was made for: those that a
// client sets with a microversion before 1.19 do not raise the generation, and would be lost.
// Writes of aggregates are rare enough for a GET.
func (r *run) checkAggregates(ctx context.Context, op Operation, path string) error {
	if op.Before == nil {
		return nil
	}
	var now wire.AggregateList
	if err := r.client.placement.Do(ctx, http.MethodGet, path, nil, &now); err != nil {
		return err
	}
	for i, aggregate := range now.Aggregates {
		now.Aggregates[i] = canonical(aggregate)
	}
	slices.Sort(now.Aggregates)
	if !slices.Equal(slices.Compact(now.Aggregates), op.Before.Aggregates) {
		return &RequestError{Method: http.MethodPut, Path: path, Unsent: true, Kind: ErrConflict,
			Detail: "the aggregates changed since the plan was made"}
	}
	return nil
}

func (r *run) setInventories(ctx context.Context, op Operation, path string) error {
	put := func(inventories providertree.Inventories) error {
		body := wire.Inventories{Generation: r.generation[op.UUID], Inventories: toWire(inventories)}
		var out wire.Inventories
		if err := r.client.placement.Do(ctx, http.MethodPut, path, body, &out); err != nil {
			return err
		}
		r.cache(op, out.Generation,
			func(t *providertree.Tree) (bool, error) { return t.SetInventories(op.UUID, inventories) })
		return nil
	}
	had := op.before().Inventories
	return writeAdmitted(put, had, op.Inventories, providertree.Inventories.Equal, put(op.Inventories),
		func(refused []string) providertree.Inventories {
			return withoutRefused(had, op.Inventories, refused)
		})
}

// maxWrites bounds the writes of one operation. An answer names 20 of what is refused.
const maxWrites = 8

// writeAdmitted retries a write that Placement admitted only in part, and returns err if it is
// another error. admitted(refused) is desired without the refused classes and kinds of traits;
// admitted(nil) is desired without everything that could be refused. No value is written twice.
func writeAdmitted[V any](
	put func(V) error, had, desired V, equal func(V, V) bool, err error, admitted func(refused []string) V,
) error {
	if !errors.Is(err, ErrNotAdmitted) {
		return err
	}
	refusal, last, refused := err, desired, []string{}
	for n, all := 2, false; n <= maxWrites && !all && errors.Is(err, ErrNotAdmitted); n++ {
		known := len(refused)
		for _, name := range refusedNames(err) {
			if !slices.Contains(refused, name) {
				refused = append(refused, name)
			}
		}
		part := admitted(refused)
		if len(refused) == known || n == maxWrites || equal(part, last) {
			part, all = admitted(nil), true
		}
		if equal(part, had) || equal(part, last) {
			return refusal
		}
		last, err = part, put(part)
	}
	return withRest(refusal, err)
}

// refusedNames are the classes and kinds of traits that Placement does not admit, nil if it does
// not list them.
func refusedNames(err error) []string {
	var failed *RequestError
	if !errors.As(err, &failed) {
		return nil
	}
	return failed.NotAdmitted
}

// withoutRefused is the desired inventory without what Placement does not admit to a host. Of the
// refused classes, or of all if refused is empty, new ones are left out, and those that would offer
// more stay as they are. A class that is no longer desired stays if it may be the former name of
// one that is left out: that offers as much, and no admitted new class does.
func withoutRefused(had, desired providertree.Inventories, refused []string) providertree.Inventories {
	offered := func(i providertree.Inventory) float64 {
		i = i.Normalize()
		return float64(i.Total) * i.AllocationRatio
	}
	out := providertree.Inventories{}
	var added, left []float64 // new classes
	for class, i := range desired {
		before, has := had[class]
		admitted := len(refused) > 0 && !slices.Contains(refused, class)
		switch {
		case has && !admitted && offered(i) > offered(before):
			out[class] = before
		case has:
			out[class] = i
		case admitted:
			out[class], added = i, append(added, offered(i))
		default:
			left = append(left, offered(i))
		}
	}
	for class, before := range had {
		asMuch := func(amount float64) bool { return amount >= offered(before) }
		if _, still := desired[class]; !still && slices.ContainsFunc(left, asMuch) &&
			!slices.ContainsFunc(added, asMuch) {
			out[class] = before
		}
	}
	return out
}

// withRest is a refusal of what grows, with how the write of the rest failed, if it did. After a
// conflict and the like it is not [ErrHostRefused]: other writes must not go on.
func withRest(refusal, err error) error {
	switch {
	case err == nil:
		return refusal
	case changesNothing(err):
		return fmt.Errorf("%w; what is admitted was not written either: %w", refusal, err)
	}
	return fmt.Errorf("%w; more than is admitted was refused before: %s", err, refusal.Error())
}

// changesNothing reports whether after a write that failed so the provider is as it was known.
func changesNothing(err error) bool {
	return errors.Is(err, ErrInventoryInUse) || errors.Is(err, ErrInvalid) || errors.Is(err, ErrHostRefused)
}

func (r *run) setTraits(ctx context.Context, op Operation, path string) error {
	put := func(traits []string) error {
		body := wire.ProviderTraits{Traits: notNil(traits), Generation: r.generation[op.UUID]}
		var out wire.ProviderTraits
		if err := r.client.placement.Do(ctx, http.MethodPut, path, body, &out); err != nil {
			return err
		}
		r.cache(op, out.Generation, func(t *providertree.Tree) (bool, error) { return t.SetTraits(op.UUID, traits) })
		return nil
	}
	traits := op.Traits
	err := put(traits)
	if errors.Is(err, ErrInvalid) {
		known, lookErr := r.client.knownTraits(ctx, traits)
		if lookErr != nil || len(known) == len(traits) {
			return err // the traits are not what is wrong
		}
		for _, trait := range traits {
			if providertree.IsCustom(trait) && !slices.Contains(known, trait) {
				return err // another client deleted it; the next pass creates it again
			}
		}
		traits = known
		err = put(traits)
	}
	had := op.before().Traits
	return writeAdmitted(put, had, traits, slices.Equal, err, func(refused []string) []string {
		if len(refused) == 0 {
			return r.ofKnownKinds(op, traits)
		}
		return slices.DeleteFunc(slices.Clone(traits), func(trait string) bool {
			return !slices.Contains(had, trait) && slices.Contains(refused, wire.TraitKind(trait))
		})
	})
}

// ofKnownKinds are the traits that Placement admits to a host that has none of another kind: those
// that the provider had, and all of a kind that one of its tree has.
func (r *run) ofKnownKinds(op Operation, traits []string) []string {
	known := map[string]bool{"": true}
	note := func(traits []string) {
		for _, trait := range traits {
			known[wire.TraitKind(trait)] = true
		}
	}
	note(op.before().Traits)
	if r.node.tree != nil {
		root, _ := r.node.tree.RootOf(op.UUID) // what others share with it is not this host's
		for _, uuid := range r.node.tree.Subtree(root) {
			p, _ := r.node.tree.Provider(uuid)
			note(p.Traits)
		}
	}
	return slices.DeleteFunc(slices.Clone(traits), func(trait string) bool { return !known[wire.TraitKind(trait)] })
}

// cache makes a change, and the generation after it, in the cached tree. Where that does not
// fit, the cache is wrong and the provider is read again; the write itself is done.
func (r *run) cache(op Operation, generation int64, change func(*providertree.Tree) (bool, error)) {
	r.generation[op.UUID] = generation
	if r.node.tree == nil {
		return
	}
	_, err := change(r.node.tree)
	if err == nil {
		err = r.node.tree.SetGeneration(op.UUID, generation)
	}
	if err != nil {
		r.node.markStale(op.UUID)
	}
}

func missingGeneration(method, path string) error {
	return &RequestError{Method: method, Path: path, Status: http.StatusOK, Kind: ErrUnexpected,
		Detail: "the answer has no resource_provider_generation"}
}

func notNil(list []string) []string {
	if list == nil {
		return []string{}
	}
	return slices.Clone(list)
}
