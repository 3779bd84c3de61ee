// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"context"
	"errors"
	"io"

	"github.com/google/uuid"

	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
)

const seeMoves = "plugins.InstanceMover; proto: service Instances"

var moverChecks = []Check{
	{
		ID: "migrate/depart", Title: "shuts an instance down that is to be moved, and keeps it",
		Needs:    protocol.CapabilityMigrate,
		Protects: "the disks of a guest that is moved, while it writes to them, and the way back",
		Rule:     "After Depart the instance is listed as shut down, also if it was before. SetPower starts it again.",
		See:      seeMoves, run: checkDepart,
	},
	{
		ID: "migrate/depart-unknown", Title: "returns InstanceNotFound for a move of an unknown uuid",
		Needs:    protocol.CapabilityMigrate,
		Protects: "a server whose guest is missing: its move would be repeated forever",
		Rule:     "Depart of an instance that does not exist returns InstanceNotFound.",
		See:      seeMoves, run: checkDepartUnknown,
	},
	{
		ID: "migrate/arrive", Title: "creates an instance that was lost with its host, and leaves it off",
		Needs:    protocol.CapabilityMigrate,
		Protects: "an evacuated server: two guests of it must never run",
		Rule: "After Arrive the instance is listed once, with the requested uuid and name, shut down. " +
			"SetPower starts it.", See: seeMoves, run: checkArrive,
	},
	{
		ID: "migrate/arrive-again", Title: "does not change an instance that arrived",
		Needs:    protocol.CapabilityMigrate,
		Protects: "an instance whose Arrive succeeded but whose response was lost",
		Rule:     "Arrive does not change an instance that a former Arrive completed, running or not.",
		See:      seeMoves, run: checkArriveAgain,
	},
	{
		ID: "migrate/leave", Title: "removes an instance that is elsewhere, also if it runs or is already removed",
		Needs:    protocol.CapabilityMigrate,
		Protects: "a host that was evacuated and comes back with its guests",
		Rule:     "After Leave the instance is not listed. Leave succeeds if there is none.",
		See:      seeMoves, run: checkLeave,
	},
}

func (p *proc) depart(ctx context.Context, m *made) error {
	_, err := rpc(ctx, p, p.limits.Instance, func(ctx context.Context) (*driverv1.DepartInstanceResponse, error) {
		return p.Instances().Depart(ctx, &driverv1.DepartInstanceRequest{Node: m.node, Uuid: m.spec.GetUuid()})
	})
	return err
}

func (p *proc) leave(ctx context.Context, m *made) error {
	_, err := rpc(ctx, p, p.limits.Instance, func(ctx context.Context) (*driverv1.LeaveInstanceResponse, error) {
		return p.Instances().Leave(ctx, &driverv1.LeaveInstanceRequest{Node: m.node, Uuid: m.spec.GetUuid()})
	})
	return err
}

// evacuate has an instance arrive whose host was lost.
func (p *proc) evacuate(ctx context.Context, m *made) (*driverv1.Instance, error) {
	return rpc(ctx, p, p.limits.Instance, func(ctx context.Context) (*driverv1.Instance, error) {
		stream, err := p.Instances().Arrive(ctx)
		if err != nil {
			return nil, err
		}
		err = stream.Send(
			&driverv1.ArriveInstanceRequest{Part: &driverv1.ArriveInstanceRequest_Begin{Begin: &driverv1.BeginArrival{
				Node: m.node, Spec: m.spec, Tree: protocol.FromTree(m.tree),
				FromNode: "drivertest-lost", Evacuation: true,
			}}})
		if err != nil && !errors.Is(err, io.EOF) { // the reason for an end is received
			return nil, err
		}
		answer, err := stream.Recv()
		switch {
		case err != nil:
			return nil, err
		case answer.GetInstance() == nil:
			return nil, errors.New("it asks for a file of a host that is down")
		}
		return answer.GetInstance(), nil
	})
}

// mustEvacuate is evacuate, after which the instance must have that power state.
func (p *proc) mustEvacuate(ctx context.Context, m *made, want driverv1.PowerState) error {
	sent := "Arrive of instance " + m.spec.GetUuid() + " in an evacuation"
	is, err := p.evacuate(ctx, m)
	if err != nil {
		return failf(sent, "%s", describe(err))
	}
	if err := failLines(sent, m.mismatches(is, want)); err != nil {
		return err
	}
	return p.mustList(ctx, m, sent, want)
}

func checkDepart(ctx context.Context, b *Bench) error {
	_, p, m, err := b.existing(ctx)
	if err != nil {
		return err
	}
	sent := "Depart of instance " + m.spec.GetUuid()
	for range 2 {
		if err := p.depart(ctx, m); err != nil {
			return failf(sent, "%s", describe(err))
		}
		if err := p.mustList(ctx, m, sent, shutdown); err != nil {
			return err
		}
		sent += ", twice"
	}
	return p.mustSetPower(ctx, m, running, false)
}

func checkDepartUnknown(ctx context.Context, b *Bench) error {
	base, p, _, err := b.newInstance(ctx)
	if err != nil {
		return err
	}
	m := &made{node: base.node, spec: &driverv1.InstanceSpec{Uuid: uuid.NewString()}}
	if err := p.depart(ctx, m); kind(err) != protocol.KindInstanceNotFound {
		return failf("Depart of an unknown uuid", "%s", verdict(err))
	}
	return nil
}

func checkArrive(ctx context.Context, b *Bench) error {
	_, p, m, err := b.newInstance(ctx)
	if err != nil {
		return err
	}
	if err := p.mustEvacuate(ctx, m, shutdown); err != nil {
		return err
	}
	return p.mustSetPower(ctx, m, running, false)
}

func checkArriveAgain(ctx context.Context, b *Bench) error {
	_, p, m, err := b.newInstance(ctx)
	if err != nil {
		return err
	}
	if _, err := p.evacuate(ctx, m); err != nil {
		return notRun("the driver creates no instance that arrives; see migrate/arrive")
	}
	if err := p.mustEvacuate(ctx, m, shutdown); err != nil {
		return err
	}
	if p.mustSetPower(ctx, m, running, false) != nil {
		return notRun("the driver does not start an instance that arrived; see migrate/arrive")
	}
	return p.mustEvacuate(ctx, m, running)
}

func checkLeave(ctx context.Context, b *Bench) error {
	_, p, m, err := b.existing(ctx)
	if err != nil {
		return err
	}
	for _, sent := range []string{"Leave of instance " +
		m.spec.GetUuid(), "Leave of instance " + m.spec.GetUuid() + ", twice"} {
		if err := p.leave(ctx, m); err != nil {
			return failf(sent, "%s", describe(err))
		}
		if err := p.mustNotList(ctx, m, sent); err != nil {
			return err
		}
	}
	return nil
}
