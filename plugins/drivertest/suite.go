// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"time"

	"github.com/compute-agent/compute-agent/internal/pluginhost/trial"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
)

// Options say which plugin is tested, and how.
type Options struct {
	// Path of the executable.
	Path string
	// Args and Env are added to the process' arguments and its otherwise minimal environment.
	Args []string
	Env  map[string]string
	// Config is the driver's configuration as JSON; nil counts as {}. With it the driver must find
	// its nodes on this machine.
	Config json.RawMessage
	// FormerPath is the executable of the last release, or "". With Former, or else with Config, it
	// makes the tree that a reshape is tried from. It must be older than Path.
	FormerPath string
	// Former is another configuration. Without FormerPath it is one with which the driver makes a
	// tree that needs a reshape with Config. If both are absent, the suite makes up a former tree
	// and checks only what the driver moved.
	Former json.RawMessage
	// Instances lets the suite create, stop and remove instances on the machine that it runs on. If
	// it is nil, checks that need an instance are not run.
	Instances *InstanceTemplate
	// Sandbox is what the plugin's processes are started in. Nil: what the agent starts a driver in
	// whose configuration says nothing about it ([launch.StandardSandbox]). NoSandbox starts them
	// without one: then the suite does not find what the agent's sandbox keeps the driver from.
	Sandbox   *Sandbox
	NoSandbox bool
	// Select selects checks by their ID; nil: all.
	Select *regexp.Regexp
	// Limits are how long the plugin may take; zero fields are the agent's own defaults.
	Limits Timeouts
	// Timeout bounds the whole suite; 0: no bound. The check that runs when it expires fails, and
	// those after it are not run.
	Timeout time.Duration
	// CheckTimeout bounds each check; 0: five minutes.
	CheckTimeout time.Duration
	// FailFast ends the suite with the first check that fails.
	FailFast bool
	// Started, if set, is called once before the first check, with a report without results.
	Started func(Report)
	// Each, if set, is called with every result as it comes, until the suite ends.
	Each func(Result)
	// Log, if set, is called with every line that the plugin's processes write, as the JSON of an
	// agent's log, one at a time. It must not block, nor keep the line.
	Log func(line []byte)
}

// Sandbox says what a plugin's process, and what it starts, can do: docs/drivers.md, The sandbox,
// has the rules. Its fields are those of [launch.Sandbox].
type Sandbox struct {
	// Required keeps the plugin from being started where the kernel has no Landlock or no filters
	// of system calls. Else it runs with what there is.
	Required bool
	// Secrets are files and directories that the process must not read, but for the names in a
	// directory. They are exempt from Write.
	Secrets []string
	// Protected are files and directories that it may read and that are exempt from Write. In a
	// directory of Secrets it may read what Write has.
	Protected []string
	// Write are files and directories that it may write to. One that contains secrets is open
	// without them, and one in a directory of Secrets is open for reading.
	Write []string
	// GrantRead and GrantWrite are what an operator allows in any case, secrets or not.
	GrantRead, GrantWrite []string
	// Modes lets the process change modes, owners and extended attributes of files: of all files of
	// its user, because Landlock does not restrict that.
	Modes bool
}

// Timeouts are the deadlines of a plugin's start, calls and stop; 0 is the agent's own default. Its
// fields are those of [driverclient.Timeouts].
type Timeouts struct {
	Handshake time.Duration // from exec to the connection; default 30 s: a hypervisor that boots is busy
	Info      time.Duration // default 5 s
	Configure time.Duration // default 30 s
	Nodes     time.Duration // AvailableNodes, NodeDeleted; default 30 s
	Update    time.Duration // UpdateProviderTree, ReshapeStep, Guests, Instances; default 60 s
	Instance  time.Duration // Spawn, Destroy, SetPower; default 10 min
	Health    time.Duration // one health check; default 3 s
	Stop      time.Duration // Shutdown, before the process is killed; default 10 s
}

// Suite returns all checks, in the order in which they run.
func Suite() []Check {
	var out []Check
	for _, c := range checks() {
		out = append(out, c.described())
	}
	return out
}

func checks() []check {
	return slices.Concat(startChecks, configChecks, nodeChecks, treeChecks, externalChecks, repairChecks,
		reshapeChecks, resultChecks, layoutChecks,
		capabilityChecks, instanceChecks, moverChecks, consoleChecks, watchChecks, warningChecks,
		loadChecks, shutdownChecks, logChecks)
}

// Execute runs the checks on a plugin.
//
// Errors: the plugin cannot be tested at all (no such file, ctx ended); a [*FormerError]. A plugin
// that does not start, or fails every check, is a Report and not an error.
func Execute(ctx context.Context, opts Options) (Report, error) {
	b, err := newBench(opts)
	if err != nil {
		return Report{}, err
	}
	defer b.close() //nolint:contextcheck // it ends in any case
	if b.opts.CheckTimeout <= 0 {
		b.opts.CheckTimeout = 5 * time.Minute
	}
	if opts.FormerPath != "" {
		if err := b.runFormer(ctx); err != nil {
			return Report{}, err
		}
	}
	b.log.begin("start/handshake")
	_, _ = b.shared(ctx) // the checks report its error
	report := Report{Description: trial.Description{Path: opts.Path, Capabilities: []string{}},
		Results: []Result{}}
	if b.info != nil {
		report.Name, report.Version, report.SDK = b.info.GetName(), b.info.GetVersion(), b.info.GetSdk()
		report.Capabilities = append(report.Capabilities, protocol.CurrentCapabilities(b.info.GetCapabilities())...)
	}
	report.Sandbox, report.SandboxLacks = b.sandbox, b.lacks
	if opts.Started != nil {
		opts.Started(report)
	}
	if err := b.runAll(ctx, &report); err != nil {
		return report, err
	}
	if report.Ended == "" {
		report.Classes, report.Traits = b.names(ctx)
	}
	return report, nil
}

// names returns the classes and traits that the driver reports for its first node.
func (b *bench) names(ctx context.Context) (classes, traits []string) {
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

// runAll runs the selected checks.
func (b *bench) runAll(parent context.Context, report *Report) error {
	ctx := parent
	if b.opts.Timeout > 0 {
		limited, cancel := context.WithTimeout(parent, b.opts.Timeout)
		defer cancel()
		ctx = limited
	}
	for _, c := range checks() {
		if b.opts.Select != nil && !c.described().In(b.opts.Select) {
			continue
		}
		if report.Ended != "" {
			report.Results = append(report.Results, c.result(notRun("%s", report.Ended)))
			continue
		}
		r := b.examine(ctx, c)
		switch {
		case parent.Err() != nil:
			return fmt.Errorf("testing %s: %w", b.opts.Path, parent.Err())
		case ctx.Err() != nil:
			report.Ended = fmt.Sprintf("the suite timed out after %v", b.opts.Timeout)
			r.Outcome, r.Sent, r.Came, r.Why = Failed, "this check and those before it", report.Ended, ""
		case r.Outcome == Failed && b.opts.FailFast:
			report.Ended = "a check failed"
		}
		report.Results = append(report.Results, r)
		if b.opts.Each != nil {
			b.opts.Each(r)
		}
	}
	return nil
}

// examine runs one check.
func (b *bench) examine(parent context.Context, c check) Result {
	ctx, cancel := context.WithTimeout(parent, b.opts.CheckTimeout)
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
		err = failf("this check", "it timed out after %v", b.opts.CheckTimeout)
	}
	b.endOwn()
	r := c.result(err)
	if r.Outcome == Failed {
		b.discard() // the next check starts with a new process
		r.Output = b.log.tail(c.ID)
	}
	if left := b.removeInstances(context.WithoutCancel(parent)); left != nil && r.Outcome == Passed {
		r = c.result(left)
	}
	b.catchUp(parent)
	r.Took = time.Since(began)
	return r
}

// changed reports whether a new process of the driver makes another tree than the baseline, because
// the machine has changed: memory was plugged, or a balloon returned some. That tree is the
// baseline then, and what was found before may not be the driver's fault.
func (b *bench) changed(ctx context.Context) bool {
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

func (b *bench) needs(ctx context.Context, c check) error {
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
