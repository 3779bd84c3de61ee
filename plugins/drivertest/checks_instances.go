// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/compute-agent/compute-agent/plugins/internal/protocol"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
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
		Rule:     "Every instance is there once, with a uuid and a power state of Nova's.", See: seeInstances, run: checkList,
	},
	{
		ID: "instances/spawn", Title: "makes an instance that runs and is listed", Needs: protocol.CapabilityInstances,
		Protects: "an instance that nobody knows of, or one that never runs",
		Rule:     "After Spawn the instance is there once, under the uuid and the name that it was asked for, and runs.", See: seeInstances, run: checkSpawn,
	},
	{
		ID: "instances/spawn-again", Title: "does not make an instance a second time", Needs: protocol.CapabilityInstances,
		Protects: "an instance whose Spawn was answered when the connection broke",
		Rule:     "What a former Spawn made is left as it is.", See: seeInstances, run: checkSpawnAgain,
	},
	{
		ID: "instances/spawn-stopped", Title: "does not start what was switched off since", Needs: protocol.CapabilityInstances,
		Protects: "an instance that its owner shut down",
		Rule:     "What a former Spawn made is left as it is, but started if it never ran.", See: seeInstances, run: checkSpawnStopped,
	},
	{
		ID: "instances/restart", Title: "knows its instances again after a restart, and lets them run on", Needs: protocol.CapabilityInstances,
		Protects: "everything that runs on the host, from an update of the driver",
		Rule:     "Instances outlive the process; the next one knows them, and their power states.", See: seeInstances, run: checkInstanceRestart,
	},
	{
		ID: "instances/destroy", Title: "removes an instance, and what is removed already", Needs: protocol.CapabilityInstances,
		Protects: "room on the host that is given to somebody else",
		Rule:     "After Destroy the instance is not listed. It succeeds if there is nothing (left) of that uuid.", See: seeInstances, run: checkDestroy,
	},
	{
		ID: "instances/destroy-unknown", Title: "has nothing against removing what there never was", Needs: protocol.CapabilityInstances,
		Protects: "the clean-up after a Spawn of which nobody knows how far it came",
		Rule:     "Destroy succeeds if there is nothing of that uuid.", See: seeInstances, run: checkDestroyUnknown,
	},
	{
		ID: "instances/remake", Title: "makes an instance anew under the uuid of one that was removed", Needs: protocol.CapabilityInstances,
		Protects: "an instance that is rebuilt",
		Rule:     "Destroy removes all that Spawn made: nothing of it is in the way of the next.", See: seeInstances, run: checkRemake,
	},
	{
		ID: "instances/power", Title: "stops and starts an instance, and again", Needs: protocol.CapabilityInstances,
		Protects: "the power state that an owner sees, and pays for",
		Rule:     "SetPower brings an instance to PowerRunning or PowerShutdown; in that state already, it changes nothing.", See: seeInstances, run: checkPower,
	},
	{
		ID: "instances/power-unknown", Title: "knows what it does not have", Needs: protocol.CapabilityInstances,
		Protects: "an agent that would wait for an instance that is gone",
		Rule:     "SetPower of a uuid that is none of Spawn's answers InstanceNotFound.", See: seeInstances, run: checkPowerUnknown,
	},
	{
		ID: "instances/unknown-provider", Title: "makes nothing of resources that there are not", Needs: protocol.CapabilityInstances,
		Protects: "the devices of another instance",
		Rule:     "What cannot be made here is refused with InstanceFault, and nothing is left of the attempt.", See: seeInstances, run: checkUnknownProvider,
	},
	{
		ID: "instances/cancelled", Title: "completes an instance whose making was cancelled", Needs: protocol.CapabilityInstances,
		Protects: "a host that fills up with halves of instances",
		Rule:     "What a former Spawn left incomplete is completed, or removed and made again; Destroy removes it.", See: seeInstances, run: checkCancelledSpawn,
	},
	{
		ID: "instances/killed", Title: "completes an instance during whose making its process was killed", Needs: protocol.CapabilityInstances,
		Protects: "a host whose driver crashed",
		Rule:     "A process can end at any point of a call; the driver goes on from what it finds.", See: seeInstances, run: checkKilledSpawn,
	},
	{
		ID: "instances/parallel", Title: "makes several instances at the same time", Needs: protocol.CapabilityInstances,
		Protects: "everybody who waits while one large image is copied",
		Rule:     "Calls about different instances run beside each other.", See: seeInstances, run: checkParallelSpawns,
	},
	{
		ID: "instances/beside-pass", Title: "makes and removes instances while it makes trees", Needs: protocol.CapabilityInstances,
		Protects: "passes, which go on while a Spawn takes minutes",
		Rule:     "Calls about instances run beside every other method of the driver.", See: seeInstances, run: checkBesidePass,
	},
	{
		ID: "instances/inventory", Title: "reports the same inventory whatever runs", Needs: protocol.CapabilityInstances,
		Protects: "capacity that would be counted twice: Placement subtracts allocations itself",
		Rule:     "Inventory is what a node has, not what is left of it.", See: "plugins.Driver.UpdateProviderTree", run: checkInventoryStays,
	},
	{
		ID: "instances/guests", Title: "counts its instances among the guests, with what they have", Needs: protocol.CapabilityGuests,
		Protects: "allocations of instances, which would be taken for those of nobody",
		Rule:     "Guests lists all guests, whoever made them. Resources are all that a guest has, or absent.", See: "plugins.GuestLister", run: checkInstanceGuests,
	},
	{
		ID: "instances/others", Title: "leaves guests of others alone", Needs: protocol.CapabilityGuests,
		Protects: "guests that somebody else made on the same host",
		Rule:     "Only what Spawn made is an instance; the driver never touches others.", See: seeInstances, run: checkOtherGuests,
	},
	{
		ID: "instances/events", Title: "tells when an instance is no longer as it was", Needs: protocol.CapabilityInstanceEvents,
		Protects: "the power state that an owner sees, which is old until the next look",
		Rule:     "The stream tells what happens to instances, whoever did it: made, stopped, started, removed.", See: "plugins.InstanceWatcher", run: checkInstanceEvents,
	},
	{
		ID: "instances/events-alive", Title: "shows a sign of life in its events, also before it is configured", Needs: protocol.CapabilityInstanceEvents,
		Protects: "a stream that died and that nobody misses",
		Rule:     "Watch may be called before Configure has ever succeeded, and sends something at least every heartbeat_ms.", See: "plugins.InstanceWatcher",
		run: checkEventsAlive,
	},
}

func checkList(ctx context.Context, b *bench) error {
	base, p, err := b.base(ctx)
	if err != nil {
		return err
	}
	sent := fmt.Sprintf("List of the instances of node %q", base.node)
	list, err := p.list(ctx, base.node)
	switch {
	case kind(err) == protocol.KindUnsupported || kind(err) == protocol.KindNotReady:
		return notApplicable("with this configuration the driver manages no instances now (%s)", said(err))
	case err != nil:
		return found(sent, "%s", said(err))
	}
	var wrong []string
	seen := map[string]bool{}
	for _, is := range list {
		id, err := providertree.CanonicalUUID(is.GetUuid())
		if err != nil {
			wrong = append(wrong, "an instance "+is.GetName()+": "+err.Error())
		}
		if seen[id] {
			wrong = append(wrong, "instance "+id+" is there twice")
		}
		seen[id] = true
		if err := protocol.CheckPower(is.GetPowerState()); err != nil {
			wrong = append(wrong, "instance "+id+": "+err.Error())
		}
	}
	return several(sent, wrong)
}

func checkSpawn(ctx context.Context, b *bench) error {
	_, p, m, err := b.manages(ctx)
	if err != nil {
		return err
	}
	if err := p.unlisted(ctx, m, "nothing at all"); err != nil {
		return err
	}
	if err := p.spawned(ctx, m); err != nil {
		return err
	}
	return p.listed(ctx, m, m.sent(), running)
}

// existing is manages, with the instance made. That it can be is the business of instances/spawn.
func (b *bench) existing(ctx context.Context) (*baseline, *proc, *made, error) {
	base, p, m, err := b.manages(ctx)
	if err == nil && p.spawned(ctx, m) != nil {
		err = notApplicable("the driver makes no instance; see instances/spawn")
	}
	return base, p, m, err
}

func checkSpawnAgain(ctx context.Context, b *bench) error {
	_, p, m, err := b.existing(ctx)
	if err != nil {
		return err
	}
	if err := p.spawned(ctx, m); err != nil {
		return err
	}
	return p.listed(ctx, m, m.sent()+", twice", running)
}

func checkSpawnStopped(ctx context.Context, b *bench) error {
	_, p, m, err := b.existing(ctx)
	if err != nil {
		return err
	}
	if err := p.switched(ctx, m, shutdown, true); err != nil {
		return notApplicable("the driver does not stop the instance; see instances/power")
	}
	if _, err := p.spawn(ctx, m); err != nil {
		return found(m.sent()+", which was made and switched off", "%s", said(err))
	}
	return p.listed(ctx, m, "SetPower to Shutdown and again "+m.sent(), shutdown)
}

func checkInstanceRestart(ctx context.Context, b *bench) error {
	base, p, m, err := b.existing(ctx)
	if err != nil {
		return err
	}
	off := b.instance(base)
	if p.spawned(ctx, off) != nil || p.switched(ctx, off, shutdown, true) != nil {
		return notApplicable("the driver does not stop an instance; see instances/power")
	}
	b.discard() // the process is killed
	if p, err = b.shared(ctx); err != nil {
		return err
	}
	if err := p.listed(ctx, m, m.sent()+", a restart of the plugin", running); err != nil {
		return err
	}
	return p.listed(ctx, off, off.sent()+", SetPower to Shutdown, a restart of the plugin", shutdown)
}

func checkDestroy(ctx context.Context, b *bench) error {
	_, p, m, err := b.existing(ctx)
	if err != nil {
		return err
	}
	for _, sent := range []string{"Destroy of instance " + m.spec.GetUuid(), "Destroy of instance " + m.spec.GetUuid() + ", twice"} {
		if err := p.destroy(ctx, m.node, m.spec.GetUuid()); err != nil {
			return found(sent, "%s", said(err))
		}
		if err := p.unlisted(ctx, m, sent); err != nil {
			return err
		}
	}
	return nil
}

func checkDestroyUnknown(ctx context.Context, b *bench) error {
	base, p, _, err := b.manages(ctx)
	if err != nil {
		return err
	}
	if err := p.destroy(ctx, base.node, uuid.NewString()); err != nil {
		return found("Destroy of a uuid that nobody has ever heard of", "%s", said(err))
	}
	return nil
}

func checkRemake(ctx context.Context, b *bench) error {
	_, p, m, err := b.existing(ctx)
	if err != nil {
		return err
	}
	if err := p.destroy(ctx, m.node, m.spec.GetUuid()); err != nil {
		return notApplicable("the driver does not remove the instance; see instances/destroy")
	}
	if err := p.spawned(ctx, m); err != nil {
		return err
	}
	return p.listed(ctx, m, m.sent()+", Destroy, Spawn", running)
}

func checkPower(ctx context.Context, b *bench) error {
	_, p, m, err := b.existing(ctx)
	if err != nil {
		return err
	}
	for _, step := range []struct {
		to   driverv1.PowerState
		hard bool
	}{{running, false}, {shutdown, true}, {shutdown, false}, {running, false}, {running, true}, {shutdown, false}} {
		if err := p.switched(ctx, m, step.to, step.hard); err != nil {
			return err
		}
	}
	return nil
}

func checkPowerUnknown(ctx context.Context, b *bench) error {
	base, p, _, err := b.manages(ctx)
	if err != nil {
		return err
	}
	for _, to := range []driverv1.PowerState{running, shutdown} {
		if _, err := p.power(ctx, base.node, uuid.NewString(), to, true); kind(err) != protocol.KindInstanceNotFound {
			return found("SetPower to "+powerWords(to)+" of a uuid that nobody has ever heard of", "%s", verdict(err))
		}
	}
	return nil
}
