// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/compute-agent/compute-agent/plugins/internal/protocol"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/providertree"
)

const seeWatch = "plugins.Watcher; proto: Driver.Watch"

var watchChecks = []Check{
	{
		ID: "health/answers", Title: "answers a health check, also before it is configured",
		Protects: "the process: one that misses three health checks is killed",
		Rule:     "Health answers within the agent's limit (3 s by default), at any time.", See: "plugins.HealthChecker; proto: Plugin.Health", run: checkHealth,
	},
	{
		ID: "health/busy", Title: "answers a health check while it makes a tree",
		Protects: "a driver that takes its time for a large tree",
		Rule:     "Health may be called beside anything, and is not to wait for other calls; nor are the warnings that come with it.", See: "plugins.HealthChecker, plugins.Warner", run: checkHealthBusy,
	},
	{
		ID: "watch/first-sign", Title: "shows a sign of life at once, also before it is configured", Needs: protocol.CapabilityWatch,
		Protects: "hot-plug, which is seen with the next minute only",
		Rule:     "Watch may be called before Configure has ever succeeded, and sends something at once.", See: seeWatch, run: checkWatchFirst,
	},
	{
		ID: "watch/heartbeat", Title: "sends a heartbeat as often as asked for", Needs: protocol.CapabilityWatch,
		Protects: "a stream that died and that nobody misses",
		Rule:     "Something is to be sent at least every heartbeat_ms; a heartbeat, if there is nothing else.", See: seeWatch, run: checkHeartbeat,
	},
	{
		ID: "watch/lasts", Title: "goes on watching until it is told to stop, and works on afterwards", Needs: protocol.CapabilityWatch,
		Protects: "an agent that would open the stream again and again",
		Rule:     "Watch lasts until the client ends it, whatever else is called meanwhile.", See: seeWatch, run: checkWatchLasts,
	},
}

// watch reads events of a stream until it has n. between runs after the first.
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

func checkHealth(ctx context.Context, b *bench) error {
	p, err := b.start(ctx)
	if err != nil {
		return notApplicable("the plugin does not start; see start/handshake")
	}
	if _, err := p.health(ctx); err != nil {
		return found("Health before Configure", "%s (limit %v)", said(err), b.limits.Health)
	}
	if p, err = b.shared(ctx); err != nil {
		return err
	}
	if _, err := p.health(ctx); err != nil {
		return found("Health after Configure", "%s (limit %v)", said(err), b.limits.Health)
	}
	return nil
}

func checkHealthBusy(ctx context.Context, b *bench) error {
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
	for range 3 {
		calls.Go(func() { _, _ = p.update(busy, tree, base.node, nil) })
	}
	for range 5 { // the calls have arrived by one of them
		if _, err = p.health(ctx); err != nil {
			break
		}
		pause(ctx, 20*time.Millisecond)
	}
	cancel()
	calls.Wait()
	if err != nil {
		return found("Health, while three UpdateProviderTree are under way", "%s (limit %v)", said(err), b.limits.Health)
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

func checkWatchFirst(ctx context.Context, b *bench) error {
	p, err := b.start(ctx)
	if err != nil {
		return err
	}
	if err := p.watch(ctx, 1, nil); err != nil {
		return found("Watch before Configure", "%s", said(err))
	}
	return nil
}

func checkHeartbeat(ctx context.Context, b *bench) error {
	p, err := b.shared(ctx)
	if err != nil {
		return err
	}
	const n = 4
	if err := p.watch(ctx, n, nil); err != nil {
		return found("Watch with heartbeat_ms 200, for four events", "%s", said(err))
	}
	return nil
}

func checkWatchLasts(ctx context.Context, b *bench) error {
	base, p, err := b.base(ctx)
	if err != nil {
		return err
	}
	var inner error
	err = p.watch(ctx, 5, func() error {
		if inner = p.configure(ctx, b.opts.Config, b.stateDir()); inner == nil {
			_, inner = p.tree(ctx, base.bare, base.node)
		}
		return inner
	})
	if err != nil {
		return found("Watch, with Configure and UpdateProviderTree meanwhile", "%s", said(err))
	}
	_, err = p.tree(ctx, base.bare, base.node)
	return err
}

const seeCalls = "plugins.Driver, Calls; wire limits: head of driver.proto"

var loadChecks = []Check{
	{
		ID: "load/cancelled", Title: "survives a call that is cancelled, and answers the next",
		Protects: "the agent's shutdown in the middle of a pass",
		Rule:     "Every context ends with its call; a driver that goes on afterwards holds up the next one.", See: seeCalls, run: checkCancelled,
	},
	{
		ID: "load/deadline", Title: "survives calls whose deadline has passed, and answers the next",
		Protects: "a slow machine",
		Rule:     "Every call carries a deadline. One that is missed spoils nothing but its own call.", See: seeCalls, run: checkDeadline,
	},
	{
		ID: "load/parallel", Title: "answers calls at the same time as if they came in turn",
		Protects: "an agent that shows a plan while a pass runs",
		Rule:     "Calls may arrive at the same time; each gets the answer that it would get alone.", See: seeCalls, run: checkParallel,
	},
	{
		ID: "load/many-providers", Title: "takes a tree of 10,000 providers and gives it back",
		Protects: "a node with many devices of others, such as a host full of SR-IOV functions",
		Rule:     "A message has at most 16 MiB in both directions. Providers of others come back as they were.", See: seeCalls, run: checkManyProviders,
	},
	{
		ID: "load/large-message", Title: "takes messages beyond gRPC's usual 4 MiB",
		Protects: "a tree with many traits: gRPC refuses it by default, on the server's side",
		Rule:     "A message has at most 16 MiB in both directions: the server's limits are set so.", See: seeCalls, run: checkLargeMessage,
	},
	{
		ID: "load/many-consumers", Title: "takes the allocations of 10,000 consumers and gives them back",
		Protects: "a reshape of a large node",
		Rule:     "Allocations come back whole, however many.", See: seeCalls, run: checkManyConsumers,
	},
	{
		ID: "load/malformed", Title: "survives a request that makes no sense",
		Protects: "the process",
		Rule:     "A request that cannot be is answered with an error.", See: seeCalls, run: checkMalformed,
	},
	{
		ID: "load/descriptors", Title: "leaks no file descriptors",
		Protects: "a driver that has worked for a month",
		Rule:     "A pass leaves no descriptor open that was not open before it.", See: "man 5 proc, /proc/PID/fd",
		run: leakCheck("open file descriptors", func(pid int) int { return entries(fmt.Sprintf("/proc/%d/fd", pid)) }),
	},
	{
		ID: "load/processes", Title: "leaves no processes behind",
		Protects: "a driver that runs a command with every pass and does not wait for it",
		Rule:     "A pass leaves no process running, or unreaped, that was not there before it.", See: "man 2 waitpid",
		run: leakCheck("processes in its group or started by it", familySize),
	},
	{
		ID: "load/threads", Title: "leaks no threads",
		Protects: "a driver that has worked for a month",
		Rule:     "A pass leaves no thread that was not there before it.", See: "man 5 proc, /proc/PID/stat; num_threads",
		run: leakCheck("threads", threads),
	},
	{
		ID: "load/memory", Title: "does not grow with every pass",
		Protects: "the memory of the host, which guests were promised",
		Rule:     "Resident memory comes to an end of growing. What grows in each of five rounds of up to 100 passes, and by 32 MiB in all, does not.", See: "compute-agent status, metric compute_agent_plugin_resident_memory_bytes",
		run: checkMemory,
	},
}

// wide is a tree of the node with n more providers of somebody else's, each with so many traits.
func (base *baseline) wide(n, traits int) (*providertree.Tree, error) {
	var all []providertree.Provider
	for p := range base.stored.All() {
		all = append(all, p)
	}
	words := make([]string, traits)
	for i := range words {
		words[i] = fmt.Sprintf("CUSTOM_SOMEBODY_ELSES_TRAIT_NUMBER_%05d", i)
	}
	for i := range n {
		all = append(all, providertree.Provider{
			UUID: uuid.NewSHA1(uuid.NameSpaceOID, fmt.Append(nil, "drivertest provider ", i)).String(), Name: fmt.Sprintf("%s:somebody-elses-%05d", base.node, i),
			ParentUUID: base.root, Generation: 1, Inventories: providertree.Inventories{strangeClass: {Total: 1000}}, Traits: words,
		})
	}
	tree := &providertree.Tree{}
	if err := tree.Populate(all); err != nil {
		return nil, fmt.Errorf("preparing a tree: %w", err)
	}
	return tree, nil
}

func checkCancelled(ctx context.Context, b *bench) error {
	base, p, err := b.base(ctx)
	if err != nil {
		return err
	}
	tree, err := base.wide(3000, 0)
	if err != nil {
		return err
	}
	for i := range 5 { // after 15 to 240 ms: the call is under way by one of them
		cut, cancel := context.WithCancel(ctx)
		timer := time.AfterFunc(15*time.Millisecond<<i, cancel)
		_, _ = p.update(cut, tree, base.node, nil)
		timer.Stop()
		cancel()
	}
	return p.unchanged(ctx, base, "five UpdateProviderTree that were cancelled, then ")
}

func checkDeadline(ctx context.Context, b *bench) error {
	base, p, err := b.base(ctx)
	if err != nil {
		return err
	}
	for i := range 5 { // 1 to 16 ms: some end before the call arrives, some while it is under way
		short, cancel := context.WithTimeout(ctx, time.Millisecond<<i)
		_, _ = p.update(short, base.stored, base.node, nil)
		_, _ = p.nodes(short)
		cancel()
	}
	return p.unchanged(ctx, base, "five UpdateProviderTree with deadlines of 1 to 16 ms, then ")
}

func checkParallel(ctx context.Context, b *bench) error {
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
					errs[i] = found("16 calls at the same time, one of them AvailableNodes", "%v, %s", nodes, verdict(err))
				}
				return
			}
			after, err := p.tree(ctx, base.bare, base.node)
			if err == nil {
				err = several("16 calls at the same time, one of them "+sentUpdate(base.bare, base.node, nil), differences(base.own, after))
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

func checkManyProviders(ctx context.Context, b *bench) error { return checkWide(ctx, b, 10_000, 0) }

func checkLargeMessage(ctx context.Context, b *bench) error { return checkWide(ctx, b, 40, 4000) }

func checkWide(ctx context.Context, b *bench, providers, traits int) error {
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
	return several(sentUpdate(tree, base.node, nil), differences(tree, after))
}

func checkManyConsumers(ctx context.Context, b *bench) error {
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
			Resources:  providertree.ProviderResources{others[i%len(others)]: {strangeClass: 1}},
			Generation: &generation, ProjectID: "project", UserID: "user", ConsumerType: "INSTANCE",
		}
	}
	sent := sentUpdate(tree, base.node, given)
	reply, err := p.update(ctx, tree, base.node, given)
	if err != nil {
		return found(sent, "%s", said(err))
	}
	back, err := protocol.ToAllocations(reply.GetAllocations())
	if err != nil {
		return found(sent, "allocations that cannot be: %v", err)
	}
	return several(sent, allocationChanges(given, back))
}

func checkMalformed(ctx context.Context, b *bench) error {
	base, p, err := b.base(ctx)
	if err != nil {
		return err
	}
	orphan := &driverv1.ProviderTree{Providers: []*driverv1.ResourceProvider{{Uuid: "no uuid", Name: base.node, ParentUuid: uuid.NewString()}}}
	for what, tree := range map[string]*driverv1.ProviderTree{"no tree": nil, "a tree whose only provider has no uuid and a parent that is not there": orphan} {
		sent := "UpdateProviderTree with " + what
		_, err := within(ctx, b.limits.Update, func(ctx context.Context) (*driverv1.UpdateProviderTreeResponse, error) {
			return p.Driver().UpdateProviderTree(ctx, &driverv1.UpdateProviderTreeRequest{Tree: tree, Node: base.node})
		})
		switch {
		case err == nil:
			return found(sent, "a tree")
		case status.Code(err) == codes.DeadlineExceeded:
			return found(sent, "%s", said(err))
		}
		if err := p.alive(ctx, sent); err != nil {
			return err
		}
	}
	return nil
}

// leakCheck counts something of the process before and after many passes.
func leakCheck(what string, count func(pid int) int) func(context.Context, *bench) error {
	return func(ctx context.Context, b *bench) error {
		base, p, err := b.base(ctx)
		if err != nil {
			return err
		}
		const passes, slack = 30, 10
		pass := func() error {
			if _, err := p.nodes(ctx); err != nil {
				return found("AvailableNodes", "%s", said(err))
			}
			_, err := p.tree(ctx, base.stored, base.node)
			return err
		}
		for range 3 { // what is opened once and kept is no leak
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
			return found(fmt.Sprintf("%d passes", passes), "%d %s, there were %d before", after, what, before)
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
