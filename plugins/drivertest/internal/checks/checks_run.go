// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
	"github.com/compute-agent/compute-agent/providertree"
)

const seeWatch = "plugins.Watcher; proto: Driver.Watch"

var watchChecks = []Check{
	{
		ID: "health/answers", Title: "answers a health check, also before it is configured",
		Protects: "the process: the agent kills it after three failed health checks",
		Rule:     "Health answers within the agent's limit (3 s by default), at any time.",
		See:      "plugins.HealthChecker; proto: Plugin.Health", run: checkHealth,
	},
	{
		ID: "health/busy", Title: "answers a health check while it makes a tree",
		Protects: "a driver that needs time for a large tree",
		Rule:     "Health, with its warnings, can be called at any time and does not wait for other calls.",
		See:      "plugins.HealthChecker, plugins.Warner", run: checkHealthBusy,
	},
	{
		ID: "watch/first-sign", Title: "sends an event at once, also before it is configured",
		Needs:    protocol.CapabilityWatch,
		Protects: "hot-plug: without a stream it is noticed with the next periodic pass only",
		Rule:     "Watch can be called before Configure has succeeded, and sends an event at once.",
		See:      seeWatch, run: checkWatchFirst,
	},
	{
		ID: "watch/heartbeat", Title: "sends a heartbeat at the requested interval", Needs: protocol.CapabilityWatch,
		Protects: "events: a broken stream would go unnoticed",
		Rule:     "An event is sent at least every heartbeat_ms; a heartbeat, if there is nothing else.",
		See:      seeWatch, run: checkHeartbeat,
	},
	{
		ID: "watch/lasts", Title: "keeps watching until the client ends the stream, and keeps working",
		Needs:    protocol.CapabilityWatch,
		Protects: "an agent that would open the stream again and again",
		Rule:     "Watch lasts until the client ends it, whatever is called meanwhile.",
		See:      seeWatch, run: checkWatchLasts,
	},
}

// watch reads n events of a stream. It calls between after the first.
func (p *proc) watch(ctx context.Context, n int, between func() error) error {
	const interval = 200 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, max(p.limits.Health, time.Duration(5*n)*interval))
	defer cancel()
	stream, err := p.Driver().Watch(ctx, &driverv1.WatchRequest{HeartbeatMs: interval.Milliseconds()})
	if err != nil {
		return err
	}
	for i := range n {
		if _, err := stream.Recv(); err != nil {
			return err
		}
		if i == 0 && between != nil {
			if err := between(); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkHealth(ctx context.Context, b *Bench) error {
	p, err := b.start(ctx)
	if err != nil {
		return notRun("the plugin does not start; see start/handshake")
	}
	if _, err := p.health(ctx); err != nil {
		return failf("Health before Configure", "%s (limit %v)", describe(err), b.limits.Health)
	}
	if p, err = b.shared(ctx); err != nil {
		return err
	}
	if _, err := p.health(ctx); err != nil {
		return failf("Health after Configure", "%s (limit %v)", describe(err), b.limits.Health)
	}
	return nil
}

func checkHealthBusy(ctx context.Context, b *Bench) error {
	base, p, err := b.base(ctx)
	if err != nil {
		return err
	}
	tree, err := base.wide(2000, 0)
	if err != nil {
		return err
	}
	busy, cancel := context.WithCancel(ctx)
	var calls sync.WaitGroup
	ended := make(chan struct{})
	end := sync.OnceFunc(func() { close(ended) })
	for range 3 {
		calls.Go(func() { _, _ = p.update(busy, tree, base.node, nil); end() })
	}
	for under := true; under && err == nil; { // during one of these the calls have arrived
		select {
		case <-ended:
			under = false
		default:
		}
		_, err = p.health(ctx)
		pause(ctx, 20*time.Millisecond)
	}
	cancel()
	calls.Wait()
	if err != nil {
		return failf("Health during three UpdateProviderTree", "%s (limit %v)", describe(err), b.limits.Health)
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func checkWatchFirst(ctx context.Context, b *Bench) error {
	p, err := b.start(ctx)
	if err != nil {
		return err
	}
	if err := p.watch(ctx, 1, nil); err != nil {
		return failf("Watch before Configure", "%s", describe(err))
	}
	return nil
}

func checkHeartbeat(ctx context.Context, b *Bench) error {
	p, err := b.shared(ctx)
	if err != nil {
		return err
	}
	const n = 4
	if err := p.watch(ctx, n, nil); err != nil {
		return failf("Watch with heartbeat_ms 200, for four events", "%s", describe(err))
	}
	return nil
}

func checkWatchLasts(ctx context.Context, b *Bench) error {
	base, p, err := b.base(ctx)
	if err != nil {
		return err
	}
	var inner error
	err = p.watch(ctx, 5, func() error {
		if inner = p.configure(ctx, b.plugin.Config, b.stateDir()); inner == nil {
			_, inner = p.tree(ctx, base.bare, base.node)
		}
		return inner
	})
	if err != nil {
		return failf("Watch, with Configure and UpdateProviderTree meanwhile", "%s", describe(err))
	}
	_, err = p.tree(ctx, base.bare, base.node)
	return err
}

const seeCalls = "plugins.Driver, Calls; message limits: head of driver.proto"

var loadChecks = []Check{
	{
		ID: "load/cancelled", Title: "survives a cancelled call, and answers the next",
		Protects: "the agent's shutdown in the middle of a pass",
		Rule:     "Every context ends with its call; a driver that keeps working afterwards delays the next call.",
		See:      seeCalls, run: checkCancelled,
	},
	{
		ID: "load/deadline", Title: "survives calls whose deadline has passed, and answers the next",
		Protects: "a slow machine",
		Rule:     "Every call has a deadline. A missed deadline affects its own call only.",
		See:      seeCalls, run: checkDeadline,
	},
	{
		ID: "load/parallel", Title: "answers concurrent calls as if they came one after the other",
		Protects: "an agent that shows a plan while a pass runs",
		Rule:     "Calls can be concurrent; each gets the result that it would get alone.",
		See:      seeCalls, run: checkParallel,
	},
	{
		ID: "load/many-providers", Title: "returns a tree of 10,000 providers",
		Protects: "a node with many external providers, such as SR-IOV functions",
		Rule:     "A message has at most 16 MiB in both directions. External providers are returned unchanged.",
		See:      seeCalls, run: checkManyProviders,
	},
	{
		ID: "load/large-message", Title: "accepts messages above gRPC's default of 4 MiB",
		Protects: "a tree with many traits: gRPC servers reject it by default",
		Rule:     "A message has at most 16 MiB in both directions: the server's limits must allow it.",
		See:      seeCalls, run: checkLargeMessage,
	},
	{
		ID: "load/many-consumers", Title: "returns the allocations of 10,000 consumers",
		Protects: "a reshape of a large node",
		Rule:     "All allocations are returned, however many.", See: seeCalls, run: checkManyConsumers,
	},
	{
		ID: "load/malformed", Title: "survives an invalid request",
		Protects: "the process",
		Rule:     "An invalid request is answered with an error.", See: seeCalls, run: checkMalformed,
	},
	{
		ID: "load/descriptors", Title: "leaks no file descriptors",
		Protects: "a driver that has run for a month",
		Rule:     "A pass leaves no additional descriptor open.", See: "man 5 proc, /proc/PID/fd",
		run: leakCheck("open file descriptors", func(pid int) int { return entries(fmt.Sprintf("/proc/%d/fd", pid)) }),
	},
	{
		ID: "load/processes", Title: "leaves no processes behind",
		Protects: "a driver that runs a command in every pass and does not wait for it",
		Rule:     "A pass leaves no additional process, running or as a zombie.", See: "man 2 waitpid",
		run: leakCheck("processes in its group or started by it", processCount),
	},
	{
		ID: "load/threads", Title: "leaks no threads",
		Protects: "a driver that has run for a month",
		Rule:     "A pass leaves no additional thread.", See: "man 5 proc, /proc/PID/stat; num_threads",
		run: leakCheck("threads", threads),
	},
	{
		ID:       "load/memory",
		Title:    "does not grow with every pass",
		Protects: "the host's memory, which belongs to guests",
		Rule: "Resident memory stops growing. It must not grow in each of five rounds of up to 100 passes and " +
			"by 32 MiB in total.",
		See: "compute-agent status, metric compute_agent_plugin_resident_memory_bytes",
		run: checkMemory,
	},
}

// wide returns the node's tree with n more external providers, each with that many traits.
func (base *baseline) wide(n, traits int) (*providertree.Tree, error) {
	var all []providertree.Provider
	for p := range base.stored.All() {
		all = append(all, p)
	}
	names := make([]string, traits)
	for i := range names {
		names[i] = fmt.Sprintf("CUSTOM_EXTERNAL_TRAIT_NUMBER_WITH_A_%05d", i)
	}
	for i := range n {
		all = append(all, providertree.Provider{
			UUID:       uuid.NewSHA1(uuid.NameSpaceOID, fmt.Append(nil, "drivertest provider ", i)).String(),
			Name:       fmt.Sprintf("%s:external-%05d", base.node, i),
			ParentUUID: base.root, Generation: 1,
			Inventories: providertree.Inventories{externalClass: {Total: 1000}}, Traits: names,
		})
	}
	tree := &providertree.Tree{}
	if err := tree.Populate(all); err != nil {
		return nil, fmt.Errorf("preparing a tree: %w", err)
	}
	return tree, nil
}

// maxCuts is how often a call is ended early, until one of them is answered in time.
const maxCuts = 10

func checkCancelled(ctx context.Context, b *Bench) error {
	base, p, err := b.base(ctx)
	if err != nil {
		return err
	}
	tree, err := base.wide(3000, 0)
	if err != nil {
		return err
	}
	for i := range maxCuts { // each twice as late as the last one: during some the call is running
		cut, cancel := context.WithCancel(ctx)
		timer := time.AfterFunc(15*time.Millisecond<<i, cancel)
		_, err := p.update(cut, tree, base.node, nil)
		timer.Stop()
		cancel()
		if err == nil {
			break
		}
	}
	return p.unchanged(ctx, base, "cancelled UpdateProviderTree, then ")
}

func checkDeadline(ctx context.Context, b *Bench) error {
	base, p, err := b.base(ctx)
	if err != nil {
		return err
	}
	for i := range maxCuts { // some expire before the call arrives, some while it runs
		short, cancel := context.WithTimeout(ctx, time.Millisecond<<i)
		_, err := p.update(short, base.stored, base.node, nil)
		_, err2 := p.nodes(short)
		cancel()
		if err == nil && err2 == nil {
			break
		}
	}
	return p.unchanged(ctx, base, "UpdateProviderTree with deadlines from 1 ms on, then ")
}

func checkParallel(ctx context.Context, b *Bench) error {
	base, p, err := b.base(ctx)
	if err != nil {
		return err
	}
	const n = 16
	errs := make([]error, n)
	var calls sync.WaitGroup
	for i := range n {
		calls.Go(func() {
			if i%4 == 0 {
				nodes, err := p.nodes(ctx)
				if err != nil || !sameNodes(nodes, base.nodes) {
					errs[i] = failf("16 concurrent calls, one of them AvailableNodes", "%v, %s", nodes, verdict(err))
				}
				return
			}
			after, err := p.tree(ctx, base.bare, base.node)
			if err == nil {
				err = failLines("16 concurrent calls, one of them "+sentUpdate(base.bare, base.node, nil),
					differences(base.own, after))
			}
			errs[i] = err
		})
	}
	calls.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func checkManyProviders(ctx context.Context, b *Bench) error { return checkWide(ctx, b, 10_000, 0) }

func checkLargeMessage(ctx context.Context, b *Bench) error { return checkWide(ctx, b, 40, 4000) }

func checkWide(ctx context.Context, b *Bench, providers, traits int) error {
	base, p, err := b.base(ctx)
	if err != nil {
		return err
	}
	tree, err := base.wide(providers, traits)
	if err != nil {
		return err
	}
	after, err := p.tree(ctx, tree, base.node)
	if err != nil {
		return err
	}
	return failLines(sentUpdate(tree, base.node, nil), differences(tree, after))
}

func checkManyConsumers(ctx context.Context, b *Bench) error {
	base, p, err := b.base(ctx)
	if err != nil {
		return err
	}
	tree, err := base.wide(100, 0)
	if err != nil {
		return err
	}
	others := tree.Subtree(base.root)[base.stored.Len():]
	given := make(providertree.Allocations, 10_000)
	for i := range 10_000 {
		generation := int64(1)
		given[consumerName(i)] = providertree.ConsumerAllocations{
			Resources:  providertree.ProviderResources{others[i%len(others)]: {externalClass: 1}},
			Generation: &generation, ProjectID: "project", UserID: "user", ConsumerType: "INSTANCE",
		}
	}
	sent := sentUpdate(tree, base.node, given)
	reply, err := p.update(ctx, tree, base.node, given)
	if err != nil {
		return failf(sent, "%s", describe(err))
	}
	back, err := protocol.ToAllocations(reply.GetAllocations())
	if err != nil {
		return failf(sent, "invalid allocations: %v", err)
	}
	return failLines(sent, allocationChanges(given, back))
}

func checkMalformed(ctx context.Context, b *Bench) error {
	base, p, err := b.base(ctx)
	if err != nil {
		return err
	}
	orphan := &driverv1.ProviderTree{Providers: []*driverv1.ResourceProvider{{Uuid: "no uuid", Name: base.node,
		ParentUuid: uuid.NewString()}}}
	for what, tree := range map[string]*driverv1.ProviderTree{"no tree": nil,
		"a tree whose only provider has an invalid uuid and a missing parent": orphan} {
		sent := "UpdateProviderTree with " + what
		update := func(ctx context.Context) (*driverv1.UpdateProviderTreeResponse, error) {
			return p.Driver().UpdateProviderTree(ctx, &driverv1.UpdateProviderTreeRequest{Tree: tree, Node: base.node})
		}
		_, err := withDeadline(ctx, b.limits.Update, update)
		switch {
		case err == nil:
			return failf(sent, "a tree")
		case status.Code(err) == codes.DeadlineExceeded:
			return failf(sent, "%s", describe(err))
		}
		if err := p.alive(ctx, sent); err != nil {
			return err
		}
	}
	return nil
}

// leakCheck counts something of the process before and after many passes.
func leakCheck(what string, count func(pid int) int) func(context.Context, *Bench) error {
	return func(ctx context.Context, b *Bench) error {
		base, p, err := b.base(ctx)
		if err != nil {
			return err
		}
		const passes, slack = 30, 10
		pass := func() error {
			if _, err := p.nodes(ctx); err != nil {
				return failf("AvailableNodes", "%s", describe(err))
			}
			_, err := p.tree(ctx, base.stored, base.node)
			return err
		}
		for range 3 { // what is opened once and kept open is not a leak
			if err := pass(); err != nil {
				return err
			}
		}
		before := count(p.PID())
		for range passes {
			if err := pass(); err != nil {
				return err
			}
		}
		if after := count(p.PID()); after > before+slack {
			return failf(fmt.Sprintf("%d passes", passes), "%d %s, %d before", after, what, before)
		}
		return nil
	}
}

func entries(dir string) int {
	list, err := os.ReadDir(dir)
	if err != nil {
		return 0
	}
	return len(list)
}
