// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/compute-agent/compute-agent/internal/pluginhost/trial"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
)

// All returns all checks, in the order in which they run.
func All() []Check {
	return slices.Concat(startChecks, configChecks, nodeChecks, treeChecks, externalChecks, repairChecks,
		reshapeChecks, resultChecks, layoutChecks,
		capabilityChecks, instanceChecks, moverChecks, consoleChecks, watchChecks, warningChecks,
		loadChecks, shutdownChecks, logChecks)
}

// Start starts the plugin, and its former release before if there is one, and returns what is known
// of it, without its path. A plugin that does not start is no error: the checks report it.
//
// Errors: a [*FormerError]; the end of ctx.
func (b *Bench) Start(ctx context.Context) (trial.Description, error) {
	if b.plugin.FormerPath != "" {
		if err := b.runFormer(ctx); err != nil {
			return trial.Description{}, err
		}
	}
	b.log.begin("start/handshake")
	_, _ = b.shared(ctx) // the checks report its error
	out := trial.Description{Capabilities: []string{}}
	if b.info != nil {
		out.Name, out.Version, out.SDK = b.info.GetName(), b.info.GetVersion(), b.info.GetSdk()
		out.Capabilities = append(out.Capabilities, protocol.CurrentCapabilities(b.info.GetCapabilities())...)
	}
	out.Sandbox, out.SandboxLacks = b.sandbox, b.lacks
	return out, nil
}

// Names returns the classes and traits that the driver reports for its first node.
func (b *Bench) Names(ctx context.Context) (classes, traits []string) {
	base := b.baseline
	if base == nil {
		var err error
		if base, _, err = b.base(ctx); err != nil {
			return nil, nil
		}
	}
	if base.own == nil {
		return nil, nil
	}
	traits = slices.Collect(maps.Keys(base.reply.GetCapabilityTraits()))
	for p := range base.own.All() {
		classes, traits = slices.AppendSeq(classes, maps.Keys(p.Inventories)), append(traits, p.Traits...)
	}
	slices.Sort(classes)
	slices.Sort(traits)
	return slices.Compact(classes), slices.Compact(traits)
}

// Path is the absolute path of the plugin's executable.
func (b *Bench) Path() string { return b.plugin.Path }

// Run runs one check, and again if the machine has changed meanwhile.
func (b *Bench) Run(parent context.Context, c Check) trial.Result {
	ctx, cancel := context.WithTimeout(parent, b.plugin.CheckTimeout)
	defer cancel()
	began := time.Now()
	b.log.begin(c.ID)
	err := b.needs(ctx, c)
	if err == nil {
		err = c.run(ctx, b)
		for range 3 {
			var found *violation
			if !errors.As(err, &found) || ctx.Err() != nil || !b.changed(ctx) {
				break
			}
			err = c.run(ctx, b)
		}
	}
	if ctx.Err() != nil && parent.Err() == nil {
		err = failf("this check", "it timed out after %v", b.plugin.CheckTimeout)
	}
	b.endOwn()
	r := c.result(err)
	if r.Outcome == trial.Failed {
		b.discard() // the next check starts with a new process
		r.Output = b.log.tail(c.ID)
	}
	if left := b.removeInstances(context.WithoutCancel(parent)); left != nil && r.Outcome == trial.Passed {
		r = c.result(left)
	}
	b.catchUp(parent)
	r.Took = time.Since(began)
	return r
}

// changed reports whether a new process of the driver makes another tree than the baseline, because
// the machine has changed: memory was plugged, or a balloon returned some. That tree is the
// baseline then, and what was found before may not be the driver's fault.
func (b *Bench) changed(ctx context.Context) bool {
	before := b.baseline
	if before == nil || before.stored == nil || b.removeInstances(ctx) != nil {
		return false
	}
	b.endOwn()
	b.discard()
	p, err := b.shared(ctx)
	if err != nil {
		return false
	}
	now, err := p.baseline(ctx)
	if err != nil || len(differences(before.stored, now.stored)) == 0 {
		return false
	}
	b.baseline = now
	return true
}

func (b *Bench) needs(ctx context.Context, c Check) error {
	if c.Needs == "" {
		return nil
	}
	if _, err := b.shared(ctx); err != nil {
		return err
	}
	if !b.announces(c.Needs) {
		return notRun("the plugin does not announce the capability %q", c.Needs)
	}
	return nil
}
