// SPDX-License-Identifier: Apache-2.0

package reportclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/providertree"
)

// ReshapeLog records a reshape before it is posted, and its outcome. It is how a journal on disk
// survives the agent.
type ReshapeLog interface {
	// Begin is called before the request leaves. When it returns, the reshape must be safe on disk;
	// an error means that it is not, and nothing is posted.
	Begin(root string, r *Reshape) error
	// End is called with the outcome of the reshape, or with [ReshapeUnknown] if it cannot be found
	// out now. An error is only logged: the reshape is not posted again, and the next start finds
	// out by [Client.ResolveReshape] what became of it.
	End(root string, outcome ReshapeOutcome) error
}

// ReshapeOutcome is what became of a reshape.
type ReshapeOutcome string

// The outcomes.
const (
	// ReshapeHappened: Placement has the requested layout.
	ReshapeHappened ReshapeOutcome = "happened"
	// ReshapeRefused: it did not happen, and Placement has the previous layout.
	ReshapeRefused ReshapeOutcome = "refused"
	// ReshapeConflict is ReshapeRefused because another client wrote first: the reshape is computed
	// again. Only a log has it.
	ReshapeConflict ReshapeOutcome = "conflict"
	// ReshapeUnknown: no answer came and Placement cannot be asked, or too much has changed since.
	ReshapeUnknown ReshapeOutcome = "unknown"
)

// DidNotHappen says that Placement has the previous layout.
func (o ReshapeOutcome) DidNotHappen() bool { return o == ReshapeRefused || o == ReshapeConflict }

// reshape posts a reshape, once, and finds out what became of it.
//
// Errors: [ErrConflict] if another client wrote, or if no answer came and it did not happen:
// everything known of the tree is forgotten, so that the pass can be computed again.
// [ErrReshapeRefused] if Placement says no for another reason. [ErrUnavailable] if no answer came
// and Placement cannot be asked; the log then has the outcome "unknown".
//
// Cost: one POST. Without an answer, one GET for each provider and consumer, and one PUT if it did
// not happen.
func (r *run) reshape(ctx context.Context, op Operation) error {
	posted := op.Reshape.clone()
	for i, p := range posted.Providers {
		posted.Providers[i].Generation = r.generation[p.UUID]
	}
	var err error
	if posted.Body, err = posted.Request(); err != nil {
		return err
	}
	if log := r.client.config.ReshapeLog; log != nil {
		if err := log.Begin(r.root, posted); err != nil {
			return fmt.Errorf("the reshape is not posted, since it cannot be recorded first: %w", err)
		}
	}
	outcome, err := r.client.postReshape(ctx, posted)
	r.logOutcome(outcome)
	switch {
	case outcome == ReshapeHappened:
		r.keepReshape(posted)
		return nil
	case outcome == ReshapeUnknown || errors.Is(err, ErrConflict):
		r.node.invalidate()
	}
	for _, p := range posted.Providers {
		r.node.markStale(p.UUID)
	}
	return err
}

func (r *run) logOutcome(outcome ReshapeOutcome) {
	log := r.client.config.ReshapeLog
	if log == nil {
		return
	}
	if err := log.End(r.root, outcome); err != nil {
		r.client.config.Logger.Warn().Str("root", r.root).Str("outcome", string(outcome)).Err(err).
			Msg("Failed to record the outcome of the reshape. The next start compares with Placement to determine it.")
	}
}

// postReshape returns an error unless the reshape happened.
func (c *Client) postReshape(ctx context.Context, r *Reshape) (ReshapeOutcome, error) {
	err := c.placement.Do(ctx, http.MethodPost, "/reshaper", r.Body, placementclient.NoContent{})
	if err == nil {
		return ReshapeHappened, nil
	}
	var failed *RequestError
	switch {
	case !errors.As(err, &failed) || failed.Unsent:
		return ReshapeRefused, err
	case !failed.OutcomeUnknown():
		if err = explainRefusal(failed); errors.Is(err, ErrConflict) {
			return ReshapeConflict, err
		}
		return ReshapeRefused, err
	}
	if ctx.Err() != nil {
		return ReshapeUnknown, fmt.Errorf("it is unknown whether the reshape happened: %w", err)
	}
	return c.resolveOutcome(ctx, r, err)
}

// ResolveReshape is [Client.CompareReshape] for a reshape of which no answer came because the agent
// ended. Its request may be on its way still, so before it says "refused" it makes sure that the
// reshape can no longer happen.
//
// Errors: that Placement cannot be asked; the outcome is unknown then.
//
// Cost: one GET for each provider and each consumer of the reshape, and one PUT if it did not
// happen.
func (c *Client) ResolveReshape(ctx context.Context, r *Reshape) (ReshapeOutcome, error) {
	outcome, err := c.resolveOutcome(ctx, r, errors.New("the agent stopped before the answer arrived"))
	if errors.Is(err, ErrConflict) { // not an error of the asking
		err = nil
	}
	return outcome, err
}

// resolveOutcome finds out what became of a reshape without an answer: lost is how the answer got
// lost.
func (c *Client) resolveOutcome(ctx context.Context, r *Reshape, lost error) (ReshapeOutcome, error) {
	unknown := func(why error) (ReshapeOutcome, error) {
		return ReshapeUnknown,
			fmt.Errorf("it is unknown whether the reshape happened: %w (at first: %s)", why, lost.Error())
	}
	found, err := c.compareReshape(ctx, r)
	if found.happened > 0 && found.not > 0 { // it arrived while we looked
		found, err = c.compareReshape(ctx, r)
	}
	if err != nil {
		return unknown(err)
	}
	if found.outcome() == ReshapeRefused && !found.moved {
		// The request may still be on its way. A write that changes nothing but a generation makes
		// sure that it fails.
		p := r.Providers[0]
		body := wire.Inventories{Generation: p.Generation, Inventories: toWire(p.Before)}
		err := c.placement.Do(ctx, http.MethodPut, "/resource_providers/"+p.UUID+"/inventories", body, nil)
		// it has arrived just now, or another client wrote: either way it is decided
		if errors.Is(err, ErrConflict) {
			found, err = c.compareReshape(ctx, r)
		}
		if err != nil {
			return unknown(err)
		}
	}
	switch found.outcome() {
	case ReshapeHappened:
		c.config.Logger.Warn().AnErr("answer", lost).
			Msg("The answer to the reshape was lost. Placement shows that it happened, so the pass continues.")
		return ReshapeHappened, nil
	case ReshapeRefused:
		return ReshapeRefused,
			fmt.Errorf("%w: the answer to the reshape was lost, and Placement shows that it did not happen (%s)",
				ErrConflict, lost.Error())
	}
	return unknown(fmt.Errorf("%w: its providers and consumers have neither their old nor their new state",
		ErrConflict))
}

// explainRefusal keeps a conflict a conflict, and a server with too much to do just that, and says
// of everything else what to do about it.
func explainRefusal(failed *RequestError) error {
	if wire.ErrorCode(failed.Code) == wire.CodeConcurrentUpdate || errors.Is(failed.Kind, ErrUnavailable) {
		return failed
	}
	advice := "compare the plan (compute-agent plan --reshape) with what openstack resource provider show " +
		"--allocations lists"
	switch failed.Status {
	case http.StatusUnauthorized:
		advice = "check the agent's credentials"
	case http.StatusForbidden:
		if errors.Is(failed.Kind, ErrNotAdmitted) {
			advice = "Placement does not admit to this host what the reshape reports: its message names the command " +
				"that does, on the machine of the compute API"
			break
		}
		if errors.Is(failed.Kind, ErrHostRefused) {
			advice = "Placement knows this agent as a host, and its message names the rule: a reshape moves what " +
				"consumers have within the trees of the host"
			break
		}
		advice = "give the agent's user the role service (openstack role add --user USER --project service service), " +
			"which Placement asks for by default, or change the policy rule placement:reshaper:reshape"
	case http.StatusBadRequest:
		advice = "a resource class or provider in it may be unknown to this Placement: is it older than the driver, " +
			"or did another client delete a provider?"
	case http.StatusConflict:
		if errors.Is(failed.Kind, ErrInventoryInUse) {
			advice = "inventory that is removed is allocated to a consumer that does not move with it: find it with " +
				"openstack resource provider show --allocations, " +
				"and delete the allocation if it is no longer used"
			break
		}
		advice = "the allocations do not fit: they exceed a capacity, or miss a min_unit, max_unit or step_size. " +
			"Placement before 2025.2 says so also of " +
			"a provider that was over-committed before: free some of it, or raise its allocation ratio for as long " +
			"as the reshape takes"
		// no conflict: the same request would be refused again
		failed.Kind = ErrReshapeRefused
	}
	return fmt.Errorf("%w; %s: %w", ErrReshapeRefused, advice, failed)
}

// keepReshape updates the cached tree after a reshape, without reading. The generations of the
// reshape's providers are known. A provider whose allocations alone changed is at least one
// generation further; if another client wrote to it, too, the next Tree finds another generation
// and reads it.
func (r *run) keepReshape(done *Reshape) {
	generations := done.generationsAfter()
	for _, p := range done.Providers {
		r.cache(Operation{UUID: p.UUID}, generations[p.UUID],
			func(t *providertree.Tree) (bool, error) { return t.SetInventories(p.UUID, p.After) })
	}
	for provider := range done.touched() {
		_, moved := generations[provider]
		generation, known := r.generation[provider]
		if moved || !known {
			continue // written above, or of another host
		}
		r.cache(Operation{UUID: provider}, generation+1, func(*providertree.Tree) (bool, error) { return false, nil })
	}
}

// invalidate drops all that is known of the tree, for the next Tree to read it again.
func (n *node) invalidate() { n.tree, n.stale = nil, nil }

// blockedReshape: a reshape builds upon every provider and class that it names.
func (r *run) blockedReshape(reshape *Reshape) error {
	for _, p := range reshape.Providers {
		if err := r.failed[p.UUID]; err != nil {
			return err
		}
		for class := range p.After {
			if err := r.symbols[class]; err != nil {
				return err
			}
		}
	}
	for provider := range reshape.touched() {
		if err := r.failed[provider]; err != nil {
			return err
		}
	}
	return nil
}
