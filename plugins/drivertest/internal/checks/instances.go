// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/google/uuid"

	"github.com/compute-agent/compute-agent/plugins"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
	"github.com/compute-agent/compute-agent/providertree"
)

// InstanceTemplate describes the instances that checks create. The fields are those of
// drivertest.InstanceTemplate.
type InstanceTemplate struct {
	Flavor             plugins.Flavor
	Image              string
	ImageProperties    map[string]string
	Metadata           map[string]string
	UserData           []byte
	KeyName, PublicKey string
}

// discarded is the public half of a key pair whose private one does not exist.
const discarded = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIDdYXGbpsTE2fzyfO0JAzbXoEJcLeP3yjG4nCKSAr1uI drivertest"

// tiny is the default flavor of instances.
var tiny = plugins.Flavor{Name: "drivertest", VCPUs: 1, MemoryMB: 128, RootGB: 1}

func (p *proc) list(ctx context.Context, node string) ([]*driverv1.Instance, error) {
	reply, err := rpc(ctx, p, p.limits.Update, func(ctx context.Context) (*driverv1.ListInstancesResponse, error) {
		return p.Instances().List(ctx, &driverv1.ListInstancesRequest{Node: node})
	})
	return reply.GetInstances(), err
}

func (p *proc) spawn(ctx context.Context, m *made) (*driverv1.Instance, error) {
	reply, err := rpc(ctx, p, p.limits.Instance, func(ctx context.Context) (*driverv1.SpawnInstanceResponse, error) {
		return p.Instances().
			Spawn(ctx, &driverv1.SpawnInstanceRequest{Node: m.node, Spec: m.spec, Tree: protocol.FromTree(m.tree)})
	})
	return reply.GetInstance(), err
}

func (p *proc) checkSpawn(ctx context.Context, m *made) error {
	_, err := rpc(ctx, p, p.limits.Instance, func(ctx context.Context) (*driverv1.CheckSpawnResponse, error) {
		return p.Instances().CheckSpawn(ctx,
			&driverv1.CheckSpawnRequest{Node: m.node, Spec: m.spec, Tree: protocol.FromTree(m.tree)})
	})
	return err
}

func (p *proc) restore(ctx context.Context, m *made) (*driverv1.Instance, error) {
	reply, err := rpc(ctx, p, p.limits.Instance, func(ctx context.Context) (*driverv1.RestoreInstanceResponse, error) {
		return p.Instances().Restore(ctx,
			&driverv1.RestoreInstanceRequest{Node: m.node, Spec: m.spec, Tree: protocol.FromTree(m.tree)})
	})
	return reply.GetInstance(), err
}

func (p *proc) destroy(ctx context.Context, node, id string) error {
	_, err := rpc(ctx, p, p.limits.Instance, func(ctx context.Context) (*driverv1.DestroyInstanceResponse, error) {
		return p.Instances().Destroy(ctx, &driverv1.DestroyInstanceRequest{Node: node, Uuid: id})
	})
	return err
}

func (p *proc) power(
	ctx context.Context, node, id string, to driverv1.PowerState, hard bool,
) (*driverv1.Instance, error) {
	reply, err := rpc(ctx, p, p.limits.Instance, func(ctx context.Context) (*driverv1.SetInstancePowerResponse, error) {
		return p.Instances().SetPower(ctx,
			&driverv1.SetInstancePowerRequest{Node: node, Uuid: id, PowerState: to, Hard: hard})
	})
	return reply.GetInstance(), err
}

// made is an instance that a check creates.
type made struct {
	node string
	spec *driverv1.InstanceSpec
	tree *providertree.Tree
}

// sent describes its Spawn.
func (m *made) sent() string {
	return fmt.Sprintf("Spawn of instance %s on node %q", m.spec.GetUuid(), m.node)
}

// newInstance is base for checks that create instances, with an instance that is not spawned yet.
func (b *Bench) newInstance(ctx context.Context) (*baseline, *proc, *made, error) {
	base, p, err := b.base(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	switch {
	case !b.announces(protocol.CapabilityInstances):
		return nil, nil, nil, notRun("the plugin does not announce the capability %q", protocol.CapabilityInstances)
	case b.plugin.Instances == nil:
		return nil, nil, nil,
			notRun("it creates and removes instances on this machine: --instances (Options.Instances) allows that")
	}
	if _, err := p.list(ctx, base.node); kind(err) == protocol.KindUnsupported || kind(err) == protocol.KindNotReady {
		return nil, nil, nil, notRun("with this configuration the driver manages no instances now (%s)", describe(err))
	}
	return base, p, b.instance(base), nil
}

// instance returns one that is not spawned yet. It is removed when the check ends.
func (b *Bench) instance(base *baseline) *made {
	t := b.plugin.Instances
	flavor := t.Flavor
	if flavor.VCPUs == 0 && flavor.MemoryMB == 0 && flavor.RootGB == 0 {
		flavor = tiny
	}
	keyName, key := t.KeyName, t.PublicKey
	if key == "" {
		keyName, key = "drivertest", discarded
	}
	id := uuid.NewString()
	m := &made{node: base.node, tree: base.stored, spec: &driverv1.InstanceSpec{
		Uuid: id, Name: "drivertest-" + id[:8], ProjectId: "drivertest", UserId: "drivertest", Image: t.Image,
		ImageProperties: maps.Clone(t.ImageProperties), Metadata: maps.Clone(t.Metadata), UserData: t.UserData,
		KeyName: keyName, PublicKey: key,
		Flavor: &driverv1.Flavor{
			Name: flavor.Name, Vcpus: flavor.VCPUs, MemoryMb: flavor.MemoryMB, RootGb: flavor.RootGB,
			EphemeralGb: flavor.EphemeralGB,
			SwapMb:      flavor.SwapMB, ExtraSpecs: maps.Clone(flavor.ExtraSpecs),
		},
		Allocations: protocol.FromResources(grant(base, flavor)),
	}}
	b.instances = append(b.instances, m)
	return m
}

// grant returns what Placement would allocate on the node for a flavor: each class on the first
// provider where it fits.
func grant(base *baseline, f plugins.Flavor) providertree.ProviderResources {
	out := providertree.ProviderResources{}
	for class, want := range map[string]int64{"VCPU": f.VCPUs, "MEMORY_MB": f.MemoryMB, "DISK_GB": f.RootGB +
		f.EphemeralGB + (f.SwapMB+1023)/1024} {
		for _, id := range base.own.Subtree(base.root) {
			inv, ok := base.own.Inventory(id, class)
			if !ok || want == 0 {
				continue
			}
			l := inv.Limits()
			n := roundUp(max(want, l.MinUnit), l.StepSize)
			if l.Fits(0, n) != nil {
				continue
			}
			out.Add(id, class, n)
			break
		}
	}
	return out
}

// removeInstances removes the instances of the check that ended. If it fails, the check fails.
func (b *Bench) removeInstances(ctx context.Context) error {
	instances := b.instances
	b.instances = nil
	if len(instances) == 0 {
		return nil
	}
	p, err := b.shared(ctx)
	if err != nil {
		return failf("a start of the plugin, to remove the check's instances", "%s", err)
	}
	var errs []error
	for _, m := range instances {
		if err := p.destroy(ctx, m.node, m.spec.GetUuid()); err != nil {
			errs = append(errs,
				failf("Destroy of instance "+
					m.spec.GetUuid()+" after the check: remove it by hand", "%s", describe(err)))
		}
	}
	return errors.Join(errs...)
}

// mustSpawn creates an instance, which must run then.
func (p *proc) mustSpawn(ctx context.Context, m *made) error {
	is, err := p.spawn(ctx, m)
	if err != nil {
		return failf(m.sent(), "%s", describe(err))
	}
	return failLines(m.sent(), m.mismatches(is, driverv1.PowerState_POWER_STATE_RUNNING))
}

// mismatches describes how an instance differs from what it should be.
func (m *made) mismatches(is *driverv1.Instance, want driverv1.PowerState) []string {
	var out []string
	if is.GetUuid() != m.spec.GetUuid() {
		out = append(out, fmt.Sprintf("an instance with the uuid %q", is.GetUuid()))
	}
	if is.GetName() != m.spec.GetName() {
		out = append(out, fmt.Sprintf("the name %q, want %q", is.GetName(), m.spec.GetName()))
	}
	if is.GetPowerState() != want {
		out = append(out, fmt.Sprintf("the power state is %s, want %s", powerName(is.GetPowerState()), powerName(want)))
	}
	return out
}

func powerName(s driverv1.PowerState) string { return plugins.PowerState(s).String() }

// mustList checks that the instance is in the list once, in that power state.
func (p *proc) mustList(ctx context.Context, m *made, after string, want driverv1.PowerState) error {
	sent := after + ", then List"
	list, err := p.list(ctx, m.node)
	if err != nil {
		return failf(sent, "%s", describe(err))
	}
	n := 0
	for _, is := range list {
		if is.GetUuid() == m.spec.GetUuid() {
			if n++; n == 1 {
				err = failLines(sent, m.mismatches(is, want))
			}
		}
	}
	if n != 1 {
		return failf(sent, "the instance is in the list %d times", n)
	}
	return err
}

// mustNotList checks that the instance is not in the list.
func (p *proc) mustNotList(ctx context.Context, m *made, after string) error {
	list, err := p.list(ctx, m.node)
	if err != nil {
		return failf(after+", then List", "%s", describe(err))
	}
	for _, is := range list {
		if is.GetUuid() == m.spec.GetUuid() {
			return failf(after+", then List", "the instance is in the list, %s", powerName(is.GetPowerState()))
		}
	}
	return nil
}

// mustSetPower calls SetPower, after which the instance must have that power state.
func (p *proc) mustSetPower(ctx context.Context, m *made, to driverv1.PowerState, hard bool) error {
	sent := fmt.Sprintf("SetPower of instance %s to %s (hard: %v)", m.spec.GetUuid(), powerName(to), hard)
	is, err := p.power(ctx, m.node, m.spec.GetUuid(), to, hard)
	if err != nil {
		return failf(sent, "%s", describe(err))
	}
	if err := failLines(sent, m.mismatches(is, to)); err != nil {
		return err
	}
	return p.mustList(ctx, m, sent, to)
}

// follow reads the events of instances, and sends "node uuid" of each until ctx ends. The channel
// is closed when the stream ends; ended returns its error.
func (p *proc) follow(ctx context.Context, heartbeat time.Duration) (events <-chan string, ended func() error) {
	out := make(chan string, 1)
	var broke error
	stream, err := p.Instances().Watch(ctx, &driverv1.WatchInstancesRequest{HeartbeatMs: heartbeat.Milliseconds()})
	if err != nil {
		close(out)
		return out, func() error { return err }
	}
	go func() {
		defer close(out)
		for {
			event, err := stream.Recv()
			if err != nil {
				broke = err
				return
			}
			what := ""
			if i := event.GetInstance(); i != nil {
				what = i.GetNode() + " " + i.GetUuid()
			}
			select {
			case out <- what:
			case <-ctx.Done():
				broke = ctx.Err()
				return
			}
		}
	}()
	return out, func() error { return broke }
}
