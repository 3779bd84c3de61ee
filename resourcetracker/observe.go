// SPDX-License-Identifier: Apache-2.0

package resourcetracker

import "context"

// Step is a part of a pass that is worth timing.
type Step string

// The steps. All but StepPass are parts of one.
const (
	// StepPass is one pass over one node, all tries included.
	StepPass Step = "pass"
	// StepRead is reading the tree from Placement.
	StepRead Step = "read"
	// StepDriver is a call of the driver.
	StepDriver Step = "driver"
	// StepGather is gathering all allocations for a reshape.
	StepGather Step = "gather"
	// StepReshape is a reshape up to its check: gathering allocations, the driver's calls and the
	// guard. Writing it is part of StepApply.
	StepReshape Step = "reshape"
	// StepGuard is checking what the driver answered.
	StepGuard Step = "guard"
	// StepApply is writing to Placement.
	StepApply Step = "apply"
)

// Event is something worth counting.
type Event string

// The events.
const (
	// EventConflict: another client wrote to the same providers, and the pass was retried.
	EventConflict Event = "conflict"
	// EventDrift: an item in Placement differs from what the agent wrote last.
	EventDrift Event = "drift"
	// EventWrite: a write to Placement was done.
	EventWrite Event = "write"
)

// Observer receives what a tracker does, for metrics and traces. Its methods are called from the
// tracker's loop and must not block.
type Observer interface {
	// Begin is called when a step begins. The step continues with stepCtx, and calls end with its
	// error, or nil, when it ends.
	Begin(ctx context.Context, step Step, driver, node string) (stepCtx context.Context, end func(err error))
	// Count is called for n events.
	Count(event Event, driver, node string, n int)
}

// unobserved is the observer of a tracker that has none.
type unobserved struct{}

func (unobserved) Begin(ctx context.Context, _ Step, _, _ string) (context.Context, func(error)) {
	return ctx, func(error) {}
}
func (unobserved) Count(Event, string, string, int) {}

// observe times one step of a pass over a node.
func (t *Tracker) observe(ctx context.Context, step Step, node string, do func(ctx context.Context) error) error {
	ctx, end := t.config.Observer.Begin(ctx, step, t.config.Name, node)
	err := do(ctx)
	end(err)
	if step == StepDriver {
		t.noteAnswer(ctx, node, err)
	}
	return err
}

func (t *Tracker) count(event Event, node string, n int) {
	if n > 0 {
		t.config.Observer.Count(event, t.config.Name, node, n)
	}
}
