// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/google/uuid"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/plugins/internal/protocol"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/providertree"
)

// InstanceTemplate is an instance that the suite may make, and make again, on the machine that it runs on: what an author allows by
// [Options.Instances]. uuid, name, owner and allocations are the suite's to choose.
type InstanceTemplate struct {
	// Flavor; the zero Flavor is a small one of 1 VCPU, 128 MiB and 1 GiB of disk.
	Flavor plugins.Flavor
	// Image and its properties, Metadata and UserData are given to the driver as they are.
	Image           string
	ImageProperties map[string]string
	Metadata        map[string]string
	UserData        []byte
}

// tiny is the flavor of instances if nobody chose one.
var tiny = plugins.Flavor{Name: "drivertest", VCPUs: 1, MemoryMB: 128, RootGB: 1}

func (p *proc) list(ctx context.Context, node string) ([]*driverv1.Instance, error) {
	reply, err := ask(ctx, p, p.limits.Update, func(ctx context.Context) (*driverv1.ListInstancesResponse, error) {
		return p.Instances().List(ctx, &driverv1.ListInstancesRequest{Node: node})
	})
	return reply.GetInstances(), err
}

func (p *proc) spawn(ctx context.Context, m *made) (*driverv1.Instance, error) {
	reply, err := ask(ctx, p, p.limits.Instance, func(ctx context.Context) (*driverv1.SpawnInstanceResponse, error) {
		return p.Instances().Spawn(ctx, &driverv1.SpawnInstanceRequest{Node: m.node, Spec: m.spec, Tree: protocol.FromTree(m.tree)})
	})
	return reply.GetInstance(), err
}

func (p *proc) destroy(ctx context.Context, node, id string) error {
	_, err := ask(ctx, p, p.limits.Instance, func(ctx context.Context) (*driverv1.DestroyInstanceResponse, error) {
		return p.Instances().Destroy(ctx, &driverv1.DestroyInstanceRequest{Node: node, Uuid: id})
	})
	return err
}

func (p *proc) power(ctx context.Context, node, id string, to driverv1.PowerState, hard bool) (*driverv1.Instance, error) {
	reply, err := ask(ctx, p, p.limits.Instance, func(ctx context.Context) (*driverv1.SetInstancePowerResponse, error) {
		return p.Instances().SetPower(ctx, &driverv1.SetInstancePowerRequest{Node: node, Uuid: id, PowerState: to, Hard: hard})
	})
	return reply.GetInstance(), err
}

// made is an instance that a check makes, or is about to.
type made struct {
	node string
	spec *driverv1.InstanceSpec
	tree *providertree.Tree
}

// sent is its Spawn in words.
func (m *made) sent() string {
	return fmt.Sprintf("Spawn of instance %s on node %q", m.spec.GetUuid(), m.node)
}

// manages is base, for checks that make instances, and an instance to be made.
func (b *bench) manages(ctx context.Context) (*baseline, *proc, *made, error) {
	base, p, err := b.base(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	switch {
	case !b.announces(protocol.CapabilityInstances):
		return nil, nil, nil, notApplicable("the plugin does not announce the capability %q", protocol.CapabilityInstances)
	case b.opts.Instances == nil:
		return nil, nil, nil, notApplicable("it makes and removes instances on this machine: give --instances (Options.Instances) to allow that")
	}
	if _, err := p.list(ctx, base.node); kind(err) == protocol.KindUnsupported || kind(err) == protocol.KindNotReady {
		return nil, nil, nil, notApplicable("with this configuration the driver manages no instances now (%s)", said(err))
	}
	return base, p, b.instance(base), nil
}

// instance is one that is not made yet. Whatever becomes of it, it is removed when the check ends.
func (b *bench) instance(base *baseline) *made {
	t := b.opts.Instances
	flavor := t.Flavor
	if flavor.VCPUs == 0 && flavor.MemoryMB == 0 && flavor.RootGB == 0 {
		flavor = tiny
	}
	id := uuid.NewString()
	m := &made{node: base.node, tree: base.stored, spec: &driverv1.InstanceSpec{
		Uuid: id, Name: "drivertest-" + id[:8], ProjectId: "drivertest", UserId: "drivertest", Image: t.Image,
		ImageProperties: maps.Clone(t.ImageProperties), Metadata: maps.Clone(t.Metadata), UserData: t.UserData,
		Flavor: &driverv1.Flavor{
			Name: flavor.Name, Vcpus: flavor.VCPUs, MemoryMb: flavor.MemoryMB, RootGb: flavor.RootGB, EphemeralGb: flavor.EphemeralGB,
			SwapMb: flavor.SwapMB, ExtraSpecs: maps.Clone(flavor.ExtraSpecs),
		},
		Allocations: protocol.FromResources(grant(base, flavor)),
	}}
	b.instances = append(b.instances, m)
	return m
}

// grant is what Placement would grant of the node for a flavor: each class of the first provider that has as much.
func grant(base *baseline, f plugins.Flavor) providertree.ProviderResources {
	out := providertree.ProviderResources{}
	for class, want := range map[string]int64{"VCPU": f.VCPUs, "MEMORY_MB": f.MemoryMB, "DISK_GB": f.RootGB + f.EphemeralGB + (f.SwapMB+1023)/1024} {
		for _, id := range base.own.Subtree(base.root) {
			inv, ok := base.own.Inventory(id, class)
			if !ok || want == 0 {
				continue
			}
			inv = inv.Normalize()
			n := (max(want, inv.MinUnit) + inv.StepSize - 1) / inv.StepSize * inv.StepSize
			if n > inv.MaxUnit || n > inv.Capacity() {
				continue
			}
			out.Add(id, class, n)
			break
		}
	}
	return out
}

// tidy removes the instances of the check that ended. That they can be removed is a part of every check that makes some.
func (b *bench) tidy(ctx context.Context) error {
	instances := b.instances
	b.instances = nil
	if len(instances) == 0 {
		return nil
	}
	p, err := b.shared(ctx)
	if err != nil {
		return found("a start of the plugin, for removing what the check made", "%s", err)
	}
	var errs []error
	for _, m := range instances {
		if err := p.destroy(ctx, m.node, m.spec.GetUuid()); err != nil {
			errs = append(errs, found("Destroy of instance "+m.spec.GetUuid()+", for tidying up: remove it by hand", "%s", said(err)))
		}
	}
	return errors.Join(errs...)
}

// spawned makes an instance; every answer but it running is a finding.
func (p *proc) spawned(ctx context.Context, m *made) error {
	is, err := p.spawn(ctx, m)
	if err != nil {
		return found(m.sent(), "%s", said(err))
	}
	return several(m.sent(), m.unlike(is, driverv1.PowerState_POWER_STATE_RUNNING))
}

// unlike says what is wrong with the description of an instance.
func (m *made) unlike(is *driverv1.Instance, want driverv1.PowerState) []string {
	var out []string
	if is.GetUuid() != m.spec.GetUuid() {
		out = append(out, fmt.Sprintf("an instance with the uuid %q", is.GetUuid()))
	}
	if is.GetName() != m.spec.GetName() {
		out = append(out, fmt.Sprintf("the name %q, it was to be %q", is.GetName(), m.spec.GetName()))
	}
	if is.GetPowerState() != want {
		out = append(out, fmt.Sprintf("the power state is %s, it was to be %s", powerWords(is.GetPowerState()), powerWords(want)))
	}
	return out
}

func powerWords(s driverv1.PowerState) string { return plugins.PowerState(s).String() }

// listed checks that the instance is in the list once, in that state.
func (p *proc) listed(ctx context.Context, m *made, after string, want driverv1.PowerState) error {
	sent := after + ", then List"
	list, err := p.list(ctx, m.node)
	if err != nil {
		return found(sent, "%s", said(err))
	}
	n := 0
	for _, is := range list {
		if is.GetUuid() == m.spec.GetUuid() {
			if n++; n == 1 {
				err = several(sent, m.unlike(is, want))
			}
		}
	}
	if n != 1 {
		return found(sent, "the instance is in the list %d times", n)
	}
	return err
}

// unlisted checks that it is not.
func (p *proc) unlisted(ctx context.Context, m *made, after string) error {
	list, err := p.list(ctx, m.node)
	if err != nil {
		return found(after+", then List", "%s", said(err))
	}
	for _, is := range list {
		if is.GetUuid() == m.spec.GetUuid() {
			return found(after+", then List", "the instance is in the list, %s", powerWords(is.GetPowerState()))
		}
	}
	return nil
}

// switched is SetPower, with what must come of it.
func (p *proc) switched(ctx context.Context, m *made, to driverv1.PowerState, hard bool) error {
	sent := fmt.Sprintf("SetPower of instance %s to %s (hard: %v)", m.spec.GetUuid(), powerWords(to), hard)
	is, err := p.power(ctx, m.node, m.spec.GetUuid(), to, hard)
	if err != nil {
		return found(sent, "%s", said(err))
	}
	if err := several(sent, m.unlike(is, to)); err != nil {
		return err
	}
	return p.listed(ctx, m, sent, to)
}

// follow reads the events of instances, and sends "node uuid" of each until ctx ends. The channel is closed when the stream ends, and
// err is what it ended with.
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
