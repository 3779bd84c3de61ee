// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/google/uuid"

	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
	"github.com/compute-agent/compute-agent/providertree"
)

const (
	seeInstances = "plugins.InstanceManager; proto: service Instances"

	running  = driverv1.PowerState_POWER_STATE_RUNNING
	shutdown = driverv1.PowerState_POWER_STATE_SHUTDOWN
)

var instanceChecks = []Check{
	{
		ID: "instances/list", Title: "lists instances, each once", Needs: protocol.CapabilityInstances,
		Protects: "an agent that reads the list",
		Rule:     "Every instance is listed once, with a uuid and one of Nova's power states.",
		See:      seeInstances, run: checkList,
	},
	{
		ID: "instances/spawn", Title: "creates an instance that runs and is listed",
		Needs:    protocol.CapabilityInstances,
		Protects: "an instance that no list has, or that never runs",
		Rule:     "After Spawn the instance is listed once, with the requested uuid and name, and runs.",
		See:      seeInstances, run: checkSpawn,
	},
	{
		ID: "instances/spawn-again", Title: "does not create an instance twice", Needs: protocol.CapabilityInstances,
		Protects: "an instance whose Spawn succeeded but whose response was lost",
		Rule:     "Spawn does not change an instance that a former Spawn created.",
		See:      seeInstances, run: checkSpawnAgain,
	},
	{
		ID: "instances/spawn-stopped", Title: "does not start an instance that was stopped since",
		Needs:    protocol.CapabilityInstances,
		Protects: "an instance that its owner shut down",
		Rule:     "Spawn does not change an instance that a former Spawn created, but starts it if it never ran.",
		See:      seeInstances, run: checkSpawnStopped,
	},
	{
		ID: "instances/restart", Title: "finds its instances after a restart, and they keep running",
		Needs:    protocol.CapabilityInstances,
		Protects: "everything that runs on the host, from an update of the driver",
		Rule:     "Instances outlive the process; the next one finds them, with their power states.",
		See:      seeInstances, run: checkInstanceRestart,
	},
	{
		ID: "instances/destroy", Title: "removes an instance, also if it is already removed",
		Needs:    protocol.CapabilityInstances,
		Protects: "capacity of the host, which the next instance gets",
		Rule:     "After Destroy the instance is not listed. Destroy succeeds if no instance has the uuid.",
		See:      seeInstances, run: checkDestroy,
	},
	{
		ID: "instances/destroy-unknown", Title: "accepts the removal of an instance that never existed",
		Needs:    protocol.CapabilityInstances,
		Protects: "the clean-up after an interrupted Spawn",
		Rule:     "Destroy succeeds if no instance has the uuid.", See: seeInstances, run: checkDestroyUnknown,
	},
	{
		ID: "instances/remake", Title: "creates an instance with the uuid of a removed one",
		Needs:    protocol.CapabilityInstances,
		Protects: "an instance that is rebuilt",
		Rule:     "Destroy removes all that Spawn created, so that the next Spawn succeeds.",
		See:      seeInstances, run: checkRemake,
	},
	{
		ID: "instances/power", Title: "stops and starts an instance, also repeatedly",
		Needs:    protocol.CapabilityInstances,
		Protects: "the power state that an owner sees, and pays for",
		Rule: "SetPower brings an instance to PowerRunning or PowerShutdown; if it is in that state already, it " +
			"changes nothing.", See: seeInstances, run: checkPower,
	},
	{
		ID:       "instances/power-known",
		Title:    "never lists a guest that is there as NOSTATE",
		Needs:    protocol.CapabilityInstances,
		Protects: "a guest that the agent would report as missing",
		Rule: "An instance that Spawn created is never listed as NOSTATE, also while it starts or stops: that " +
			"means that there is no guest.",
		See: seeInstances,
		run: checkPowerKnown,
	},
	{
		ID: "instances/power-unknown", Title: "returns InstanceNotFound for an unknown uuid",
		Needs:    protocol.CapabilityInstances,
		Protects: "an agent that would wait for a removed instance",
		Rule:     "SetPower of a uuid that Spawn did not create returns InstanceNotFound.",
		See:      seeInstances, run: checkPowerUnknown,
	},
	{
		ID: "instances/unknown-provider", Title: "creates no instance with resources that do not exist",
		Needs:    protocol.CapabilityInstances,
		Protects: "the devices of another instance",
		Rule: "If an instance cannot be created on this host, Spawn returns InstanceFault and leaves " +
			"nothing behind.", See: seeInstances, run: checkUnknownProvider,
	},
	{
		ID: "instances/check-spawn", Title: "tells whether an instance could be created, and changes nothing",
		Needs:    protocol.CapabilityCheckSpawn,
		Protects: "the disks of an instance that is to be created again from an image that does not exist",
		Rule: "CheckSpawn returns an error for what Spawn would refuse, counts no instance with the same uuid " +
			"as an obstacle, and creates, starts and removes nothing.",
		See: "plugins.SpawnChecker; proto: Instances.CheckSpawn", run: checkCheckSpawn,
	},
	{
		ID: "instances/restore", Title: "restores nothing without its disks, and leaves what exists as it is",
		Needs:    protocol.CapabilityRestore,
		Protects: "the disks of an instance whose guest was removed with another tool",
		Rule: "Restore of an instance that exists changes nothing; of one of which there are no disks it " +
			"returns InstanceFault and creates nothing.",
		See: "plugins.InstanceRestorer; proto: Instances.Restore", run: checkRestore,
	},
	{
		ID: "instances/cancelled", Title: "completes an instance whose Spawn was cancelled",
		Needs:    protocol.CapabilityInstances,
		Protects: "a host that would fill up with incomplete instances",
		Rule: "Spawn completes what a former Spawn left incomplete, or removes and creates it again; Destroy " +
			"removes it.", See: seeInstances, run: checkCancelledSpawn,
	},
	{
		ID: "instances/killed", Title: "completes an instance whose Spawn was interrupted by a kill",
		Needs:    protocol.CapabilityInstances,
		Protects: "a host whose driver crashed",
		Rule:     "A process can end at any point of a call; the next one continues from what it finds.",
		See:      seeInstances, run: checkKilledSpawn,
	},
	{
		ID: "instances/parallel", Title: "creates several instances at the same time",
		Needs:    protocol.CapabilityInstances,
		Protects: "users who would wait while one large image is copied",
		Rule:     "Calls for different instances run concurrently.", See: seeInstances, run: checkParallelSpawns,
	},
	{
		ID: "instances/beside-pass", Title: "creates and removes instances while it makes trees",
		Needs:    protocol.CapabilityInstances,
		Protects: "passes, which continue while a Spawn takes minutes",
		Rule:     "Calls for instances run concurrently with every other method of the driver.",
		See:      seeInstances, run: checkBesidePass,
	},
	{
		ID: "instances/inventory", Title: "reports the same inventory whatever runs",
		Needs:    protocol.CapabilityInstances,
		Protects: "capacity that would be subtracted twice: Placement subtracts allocations itself",
		Rule:     "Inventory is what a node has, not what is free.",
		See:      "plugins.Driver.UpdateProviderTree", run: checkInventoryStays,
	},
	{
		ID: "instances/guests", Title: "lists its instances as guests, with their resources",
		Needs:    protocol.CapabilityGuests,
		Protects: "allocations of instances, which would look like leftovers",
		Rule: "Guests lists all guests, whichever client created them. Resources are all that a guest " +
			"has, or absent.", See: "plugins.GuestLister", run: checkInstanceGuests,
	},
	{
		ID: "instances/others", Title: "does not touch unmanaged guests", Needs: protocol.CapabilityGuests,
		Protects: "guests that other tools created on the same host",
		Rule:     "Only what Spawn created is an instance; the driver never changes other guests.",
		See:      seeInstances, run: checkOtherGuests,
	},
	{
		ID:       "instances/events",
		Title:    "sends an event when an instance changes",
		Needs:    protocol.CapabilityInstanceEvents,
		Protects: "the power state that an owner sees, which would be outdated until the next list",
		Rule: "The stream has an event for every instance that is created, stopped, started or removed, by " +
			"whatever means.",
		See: "plugins.InstanceWatcher",
		run: checkInstanceEvents,
	},
	{
		ID: "instances/events-alive", Title: "sends heartbeats in its instance events, also before it is configured",
		Needs:    protocol.CapabilityInstanceEvents,
		Protects: "events: a broken stream would go unnoticed",
		Rule:     "Watch can be called before Configure has succeeded, and sends an event at least every heartbeat_ms.",
		See:      "plugins.InstanceWatcher",
		run:      checkEventsAlive,
	},
}

func checkList(ctx context.Context, b *Bench) error {
	base, p, err := b.base(ctx)
	if err != nil {
		return err
	}
	sent := fmt.Sprintf("List of the instances of node %q", base.node)
	list, err := p.list(ctx, base.node)
	switch {
	case kind(err) == protocol.KindUnsupported || kind(err) == protocol.KindNotReady:
		return notRun("with this configuration the driver manages no instances now (%s)", describe(err))
	case err != nil:
		return failf(sent, "%s", describe(err))
	}
	var wrong []string
	seen := map[string]bool{}
	for _, is := range list {
		id, err := providertree.CanonicalUUID(is.GetUuid())
		if err != nil {
			wrong = append(wrong, "an instance "+is.GetName()+": "+err.Error())
		}
		if seen[id] {
			wrong = append(wrong, "instance "+id+" is listed twice")
		}
		seen[id] = true
		if err := protocol.CheckPower(is.GetPowerState()); err != nil {
			wrong = append(wrong, "instance "+id+": "+err.Error())
		}
	}
	return failLines(sent, wrong)
}

func checkSpawn(ctx context.Context, b *Bench) error {
	_, p, m, err := b.newInstance(ctx)
	if err != nil {
		return err
	}
	if err := p.mustNotList(ctx, m, "no call"); err != nil {
		return err
	}
	if err := p.mustSpawn(ctx, m); err != nil {
		return err
	}
	return p.mustList(ctx, m, m.sent(), running)
}

// existing is newInstance with a spawned instance. If Spawn fails, instances/spawn reports it.
func (b *Bench) existing(ctx context.Context) (*baseline, *proc, *made, error) {
	base, p, m, err := b.newInstance(ctx)
	if err == nil && p.mustSpawn(ctx, m) != nil {
		err = notRun("the driver creates no instance; see instances/spawn")
	}
	return base, p, m, err
}

func checkSpawnAgain(ctx context.Context, b *Bench) error {
	_, p, m, err := b.existing(ctx)
	if err != nil {
		return err
	}
	if err := p.mustSpawn(ctx, m); err != nil {
		return err
	}
	return p.mustList(ctx, m, m.sent()+", twice", running)
}

func checkSpawnStopped(ctx context.Context, b *Bench) error {
	_, p, m, err := b.existing(ctx)
	if err != nil {
		return err
	}
	if err := p.mustSetPower(ctx, m, shutdown, true); err != nil {
		return notRun("the driver does not stop the instance; see instances/power")
	}
	if _, err := p.spawn(ctx, m); err != nil {
		return failf(m.sent()+", which was created and stopped", "%s", describe(err))
	}
	return p.mustList(ctx, m, "SetPower to Shutdown and again "+m.sent(), shutdown)
}

func checkInstanceRestart(ctx context.Context, b *Bench) error {
	base, p, m, err := b.existing(ctx)
	if err != nil {
		return err
	}
	off := b.instance(base)
	if p.mustSpawn(ctx, off) != nil || p.mustSetPower(ctx, off, shutdown, true) != nil {
		return notRun("the driver does not stop an instance; see instances/power")
	}
	b.discard() // the process is killed
	if p, err = b.shared(ctx); err != nil {
		return err
	}
	if err := p.mustList(ctx, m, m.sent()+", a restart of the plugin", running); err != nil {
		return err
	}
	return p.mustList(ctx, off, off.sent()+", SetPower to Shutdown, a restart of the plugin", shutdown)
}

func checkDestroy(ctx context.Context, b *Bench) error {
	_, p, m, err := b.existing(ctx)
	if err != nil {
		return err
	}
	for _, sent := range []string{"Destroy of instance " +
		m.spec.GetUuid(), "Destroy of instance " + m.spec.GetUuid() + ", twice"} {
		if err := p.destroy(ctx, m.node, m.spec.GetUuid()); err != nil {
			return failf(sent, "%s", describe(err))
		}
		if err := p.mustNotList(ctx, m, sent); err != nil {
			return err
		}
	}
	return nil
}

func checkDestroyUnknown(ctx context.Context, b *Bench) error {
	base, p, _, err := b.newInstance(ctx)
	if err != nil {
		return err
	}
	if err := p.destroy(ctx, base.node, uuid.NewString()); err != nil {
		return failf("Destroy of an unknown uuid", "%s", describe(err))
	}
	return nil
}

func checkRemake(ctx context.Context, b *Bench) error {
	_, p, m, err := b.existing(ctx)
	if err != nil {
		return err
	}
	if err := p.destroy(ctx, m.node, m.spec.GetUuid()); err != nil {
		return notRun("the driver does not remove the instance; see instances/destroy")
	}
	if err := p.mustSpawn(ctx, m); err != nil {
		return err
	}
	return p.mustList(ctx, m, m.sent()+", Destroy, Spawn", running)
}

func checkPower(ctx context.Context, b *Bench) error {
	_, p, m, err := b.existing(ctx)
	if err != nil {
		return err
	}
	for _, step := range []struct {
		to   driverv1.PowerState
		hard bool
	}{{running, false}, {shutdown, true}, {shutdown, false}, {running, false}, {running, true}, {shutdown, false}} {
		if err := p.mustSetPower(ctx, m, step.to, step.hard); err != nil {
			return err
		}
	}
	return nil
}

// checkPowerKnown lists without a pause while the instance is started and stopped, until a list was
// answered that began during such a call. A list may fail then, or wait for the end of the call.
func checkPowerKnown(ctx context.Context, b *Bench) error {
	base, p, m, err := b.existing(ctx)
	if err != nil {
		return err
	}
	const rounds = 20
	var seen [2]bool // lists during a stop, and during a start
	for range rounds {
		for i, to := range []driverv1.PowerState{shutdown, running} {
			during, err := p.listsDuring(ctx, base.node, m, to)
			if err != nil {
				return err
			}
			seen[i] = seen[i] || during
		}
		if seen[0] && seen[1] {
			return nil
		}
	}
	return notRun("the driver answers no List that begins while it starts or stops an instance")
}

// listsDuring changes the power of the instance and lists until that has ended, and reports whether
// a list was answered that began before.
func (p *proc) listsDuring(ctx context.Context, node string, m *made, to driverv1.PowerState) (during bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	began, ended := make(chan struct{}), make(chan error, 1)
	var over atomic.Bool
	go func() {
		close(began)
		_, err := p.power(ctx, m.node, m.spec.GetUuid(), to, true)
		over.Store(true)
		ended <- err
	}()
	<-began
	var listed error
	for listed == nil && !over.Load() {
		var answered bool
		answered, listed = p.mustListPower(ctx, node, m)
		during = during || answered
	}
	if listed != nil {
		cancel() // it is in no state to go on
	}
	err = <-ended
	switch {
	case listed != nil:
		return false, listed
	case err != nil:
		return false, notRun("the driver does not start and stop the instance; see instances/power")
	}
	return during, nil
}

// mustListPower checks that the instance has a power state, if the list is answered.
func (p *proc) mustListPower(ctx context.Context, node string, m *made) (answered bool, err error) {
	list, err := p.list(ctx, node)
	if err != nil {
		return false, nil //nolint:nilerr // it may fail while a guest changes
	}
	for _, is := range list {
		if is.GetUuid() == m.spec.GetUuid() && is.GetPowerState() == driverv1.PowerState_POWER_STATE_NOSTATE {
			return true, failf(fmt.Sprintf("List of the instances of node %q, during SetPower", node),
				"instance %s is %s", is.GetUuid(), powerName(is.GetPowerState()))
		}
	}
	return true, nil
}

func checkPowerUnknown(ctx context.Context, b *Bench) error {
	base, p, _, err := b.newInstance(ctx)
	if err != nil {
		return err
	}
	for _, to := range []driverv1.PowerState{running, shutdown} {
		if _, err := p.power(ctx, base.node, uuid.NewString(), to, true); kind(err) != protocol.KindInstanceNotFound {
			return failf("SetPower to "+powerName(to)+" of an unknown uuid", "%s", verdict(err))
		}
	}
	return nil
}
