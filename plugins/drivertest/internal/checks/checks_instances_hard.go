// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
)

// Checks of instances that are rejected, interrupted or concurrent, and of events and guests.

func checkUnknownProvider(ctx context.Context, b *Bench) error {
	_, p, m, err := b.newInstance(ctx)
	if err != nil {
		return err
	}
	m.spec.Allocations = map[string]*driverv1.Resources{uuid.NewString(): {Amounts: map[string]int64{"VCPU": 1}}}
	sent := m.sent() + " with allocations of a resource provider that is not in the tree"
	if _, err := p.spawn(ctx, m); err == nil {
		return failf(sent, "an instance")
	} else if k := kind(err); k == protocol.KindNotReady || k == protocol.KindUnsupported {
		return failf(sent, "%s", describe(err))
	}
	return p.mustNotList(ctx, m, sent)
}

func checkCheckSpawn(ctx context.Context, b *Bench) error {
	base, p, m, err := b.newInstance(ctx)
	if err != nil {
		return err
	}
	sent := fmt.Sprintf("CheckSpawn of instance %s on node %q", m.spec.GetUuid(), m.node)
	if err := p.checkSpawn(ctx, m); err != nil {
		return failf(sent, "%s", describe(err))
	}
	if err := p.mustNotList(ctx, m, sent); err != nil {
		return err
	}
	nowhere := b.instance(base)
	nowhere.spec.Allocations = map[string]*driverv1.Resources{uuid.NewString(): {Amounts: map[string]int64{"VCPU": 1}}}
	if err := p.checkSpawn(ctx, nowhere); err == nil ||
		kind(err) == protocol.KindNotReady || kind(err) == protocol.KindUnsupported {
		return failf("CheckSpawn of an instance with allocations of a resource provider that is not in the tree",
			"%s", verdict(err))
	}
	if p.mustSpawn(ctx, m) != nil || p.mustSetPower(ctx, m, shutdown, true) != nil {
		return notRun("the driver does not create and stop the instance; see instances/spawn and instances/power")
	}
	sent += ", which exists and is off"
	if err := p.checkSpawn(ctx, m); err != nil {
		return failf(sent, "%s", describe(err))
	}
	return p.mustList(ctx, m, sent, shutdown)
}

func checkRestore(ctx context.Context, b *Bench) error {
	_, p, m, err := b.newInstance(ctx)
	if err != nil {
		return err
	}
	sent := fmt.Sprintf("Restore of instance %s on node %q", m.spec.GetUuid(), m.node)
	mustFault := func(sent string) error {
		if _, err := p.restore(ctx, m); kind(err) != protocol.KindInstanceFault {
			return failf(sent, "%s", verdict(err))
		}
		return p.mustNotList(ctx, m, sent)
	}
	if err := mustFault(sent + ", which never existed"); err != nil {
		return err
	}
	if p.mustSpawn(ctx, m) != nil {
		return notRun("the driver does not create the instance; see instances/spawn")
	}
	for _, state := range []driverv1.PowerState{running, shutdown} {
		if p.mustSetPower(ctx, m, state, true) != nil {
			return notRun("the driver does not start and stop the instance; see instances/power")
		}
		exists := fmt.Sprintf("%s, which exists and is in the state %s", sent, powerName(state))
		is, err := p.restore(ctx, m)
		if err != nil {
			return failf(exists, "%s", describe(err))
		}
		if err := failLines(exists, m.mismatches(is, state)); err != nil {
			return err
		}
		if err := p.mustList(ctx, m, exists, state); err != nil {
			return err
		}
	}
	if p.destroy(ctx, m.node, m.spec.GetUuid()) != nil {
		return notRun("the driver does not remove the instance; see instances/destroy")
	}
	return mustFault(sent + ", after Destroy")
}

// mustComplete checks that an instance whose Spawn was interrupted can be created, and removed.
func (p *proc) mustComplete(ctx context.Context, m *made, after string) error {
	if _, err := p.list(ctx, m.node); err != nil {
		return failf(after+", then List", "%s", describe(err))
	}
	is, err := p.spawn(ctx, m)
	if err != nil {
		return failf(after+", then Spawn again", "%s", describe(err))
	}
	if err := failLines(after+", then Spawn again", m.mismatches(is, running)); err != nil {
		return err
	}
	if err := p.mustList(ctx, m, after+", then Spawn again", running); err != nil {
		return err
	}
	if err := p.destroy(ctx, m.node, m.spec.GetUuid()); err != nil {
		return failf(after+", then Spawn again and Destroy", "%s", describe(err))
	}
	return p.mustNotList(ctx, m, after+", then Spawn again and Destroy")
}

// maxCutSpawns is how often a Spawn is interrupted, each four times as late as the last one, until
// one of them is answered before.
const maxCutSpawns = 7

func spawnCut(i int) time.Duration { return time.Millisecond << (2 * i) / 2 }

func checkCancelledSpawn(ctx context.Context, b *Bench) error {
	base, p, _, err := b.newInstance(ctx)
	if err != nil {
		return err
	}
	for i := range maxCutSpawns {
		m := b.instance(base)
		cut, cancel := context.WithTimeout(ctx, spawnCut(i))
		_, interrupted := p.spawn(cut, m)
		cancel()
		if err := p.mustComplete(ctx, m, m.sent()+", cancelled"); err != nil {
			return err
		}
		if interrupted == nil {
			break
		}
	}
	return nil
}

func checkKilledSpawn(ctx context.Context, b *Bench) error {
	base, _, _, err := b.newInstance(ctx)
	if err != nil {
		return err
	}
	for i := range maxCutSpawns {
		doomed, err := b.configured(ctx)
		if err != nil {
			return err
		}
		m := b.instance(base)
		var call sync.WaitGroup
		var interrupted error
		call.Go(func() { _, interrupted = doomed.spawn(ctx, m) })
		pause(ctx, spawnCut(i))
		doomed.Kill()
		call.Wait()
		p, err := b.configured(ctx)
		if err != nil {
			return err
		}
		if err := p.mustComplete(ctx, m, m.sent()+", the process killed and started again"); err != nil {
			return err
		}
		p.Kill()
		if interrupted == nil {
			break
		}
	}
	return nil
}

func checkParallelSpawns(ctx context.Context, b *Bench) error {
	base, p, first, err := b.newInstance(ctx)
	if err != nil {
		return err
	}
	all := []*made{first, b.instance(base), b.instance(base)}
	for _, step := range []struct {
		do    func(m *made) error
		check func(m *made) error
	}{
		{func(m *made) error { return p.mustSpawn(ctx, m) },
			func(m *made) error { return p.mustList(ctx, m, "three concurrent Spawns", running) }},
		{func(m *made) error { return p.destroy(ctx, m.node, m.spec.GetUuid()) },
			func(m *made) error { return p.mustNotList(ctx, m, "three concurrent Destroys") }},
	} {
		errs := make([]error, len(all))
		var calls sync.WaitGroup
		for i, m := range all {
			calls.Go(func() { errs[i] = step.do(m) })
		}
		calls.Wait()
		for i, m := range all {
			if errs[i] != nil {
				return failf("three concurrent Spawns, then three concurrent Destroys", "%v", errs[i])
			}
			if err := step.check(m); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkBesidePass(ctx context.Context, b *Bench) error {
	base, p, m, err := b.newInstance(ctx)
	if err != nil {
		return err
	}
	tree, err := base.wide(2000, 0)
	if err != nil {
		return err
	}
	var calls sync.WaitGroup
	passes := make([]error, 3)
	for i := range passes {
		calls.Go(func() {
			after, err := p.tree(ctx, tree, base.node)
			if err == nil {
				err = failLines(sentUpdate(tree, base.node, nil)+", during Spawn and Destroy", differences(tree, after))
			}
			passes[i] = err
		})
	}
	err = p.mustSpawn(ctx, m)
	if err == nil {
		if gone := p.destroy(ctx, m.node, m.spec.GetUuid()); gone != nil {
			err = failf("Destroy during three UpdateProviderTree", "%s", describe(gone))
		}
	}
	calls.Wait()
	for _, pass := range passes {
		if err == nil {
			err = pass
		}
	}
	return err
}

func checkInventoryStays(ctx context.Context, b *Bench) error {
	base, p, m, err := b.existing(ctx)
	if err != nil {
		return err
	}
	after, err := p.tree(ctx, base.stored, base.node)
	if err != nil {
		return err
	}
	return failLines(m.sent()+", then "+sentUpdate(base.stored, base.node, nil), differences(base.stored, after))
}

func checkInstanceGuests(ctx context.Context, b *Bench) error {
	base, p, m, err := b.existing(ctx)
	if err != nil {
		return err
	}
	sent := m.sent() + ", then Guests"
	guests, err := p.guests(ctx, base.stored, base.node)
	switch {
	case kind(err) == protocol.KindUnsupported || kind(err) == protocol.KindNotReady:
		return notRun("the driver cannot list guests now (%s)", describe(err))
	case err != nil:
		return failf(sent, "%s", describe(err))
	}
	for _, g := range guests {
		if g.GetUuid() != m.spec.GetUuid() {
			continue
		}
		if g.GetResources() == nil { // not known
			return nil
		}
		var wrong []string
		granted, has := m.spec.GetAllocations(), g.GetResources().GetResources()
		for _, provider := range union(granted, has) {
			for _, class := range union(granted[provider].GetAmounts(), has[provider].GetAmounts()) {
				if want, is := granted[provider].GetAmounts()[class], has[provider].GetAmounts()[class]; want != is {
					wrong = append(wrong,
						fmt.Sprintf("the guest has %d %s of resource provider %s, it was created with %d",
							is, class, provider, want))
				}
			}
		}
		return failLines(sent, wrong)
	}
	return failf(sent, "a list of %s, without the instance", textutil.Count(len(guests), "guest"))
}

func checkOtherGuests(ctx context.Context, b *Bench) error {
	base, p, m, err := b.newInstance(ctx)
	if err != nil {
		return err
	}
	before, err := p.guests(ctx, base.stored, base.node)
	if err != nil {
		return notRun("the driver cannot list guests now (%s)", describe(err))
	}
	if p.mustSpawn(ctx, m) != nil || p.destroy(ctx, m.node, m.spec.GetUuid()) != nil {
		return notRun("the driver does not create or remove an instance; see instances/spawn and instances/destroy")
	}
	sent := m.sent() + ", Destroy, then Guests"
	after, err := p.guests(ctx, base.stored, base.node)
	if err != nil {
		return failf(sent, "%s", describe(err))
	}
	still := map[string]bool{}
	for _, g := range after {
		still[g.GetUuid()] = true
	}
	var gone []string
	for _, g := range before {
		if !still[g.GetUuid()] {
			gone = append(gone, "guest "+g.GetUuid()+" is missing")
		}
	}
	return failLines(sent, gone)
}

func checkInstanceEvents(ctx context.Context, b *Bench) error {
	_, p, m, err := b.newInstance(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, b.limits.Update)
	defer cancel()
	events, ended := p.follow(ctx, 200*time.Millisecond)
	about := func(event string) bool {
		return event == m.node+" "+m.spec.GetUuid() || event == m.node+" " || event == " "
	}
	// settled waits until the driver watches, and has no late event of an earlier step: two
	// heartbeats follow each other. A driver that compares states may miss one that lasts shorter.
	settled := func() bool {
		for quiet := 0; quiet < 2; {
			event, ok := <-events
			switch {
			case !ok:
				return false
			case event == "":
				quiet++
			case about(event):
				quiet = 0
			}
		}
		return true
	}
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"Spawn", func() error { return p.mustSpawn(ctx, m) }},
		{"SetPower to Shutdown", func() error { return p.mustSetPower(ctx, m, shutdown, true) }},
		{"SetPower to Running", func() error { return p.mustSetPower(ctx, m, running, false) }},
		{"Destroy", func() error { return p.destroy(ctx, m.node, m.spec.GetUuid()) }},
	} {
		if !settled() {
			return failf("Watch of instances with heartbeat_ms 200, before "+step.what, "%s", describe(ended()))
		}
		if step.do() != nil {
			return notRun(
				"the driver does not change the instance; see instances/spawn, instances/power and instances/destroy")
		}
		for received := false; !received; {
			event, ok := <-events
			if !ok {
				return failf(step.what+" of instance "+m.spec.GetUuid()+", with a Watch of instances",
					"no event for it within %v: %s", b.limits.Update, describe(ended()))
			}
			received = about(event)
		}
	}
	return nil
}

func checkEventsAlive(ctx context.Context, b *Bench) error {
	p, err := b.start(ctx)
	if err != nil {
		return err
	}
	const interval, n = 200 * time.Millisecond, 4
	ctx, cancel := context.WithTimeout(ctx, max(b.limits.Health, 5*n*interval))
	defer cancel()
	events, ended := p.follow(ctx, interval)
	for i := range n {
		if _, ok := <-events; !ok {
			return failf("Watch of instances before Configure, with heartbeat_ms 200",
				"%s after %s", describe(ended()), textutil.Count(i, "event"))
		}
	}
	return nil
}
