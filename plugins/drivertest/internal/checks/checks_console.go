// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/google/uuid"

	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
)

const (
	seeConsoleLog = "plugins.ConsoleLogger; proto: Instances.ConsoleLog"
	seeConsole    = "plugins.ConsoleOpener; proto: Instances.Console"
)

var consoleChecks = []Check{
	{
		ID: "console-log/bounded", Title: "returns the end of a console log, and no more than is asked for",
		Needs:    protocol.CapabilityConsoleLog,
		Protects: "an agent that asks for a screen, and a guest that wrote gigabytes",
		Rule:     "ConsoleLog returns at most max_bytes, the last ones, whether the instance runs or not.",
		See:      seeConsoleLog, run: checkConsoleLog,
	},
	{
		ID: "console-log/unknown", Title: "returns InstanceNotFound for the log of an unknown uuid",
		Needs:    protocol.CapabilityConsoleLog,
		Protects: "owners, who would see nothing or the log of another guest",
		Rule:     "ConsoleLog of a uuid that Spawn did not create returns InstanceNotFound.",
		See:      seeConsoleLog, run: checkConsoleLogUnknown,
	},
	{
		ID: "console/open", Title: "gives the console of an instance that runs, and again when it was given back",
		Needs:    protocol.CapabilityConsole,
		Protects: "users, whose lost connection would lock them out",
		Rule: "Console of an instance that runs answers with opened first, and the console is free when the " +
			"call has ended.", See: seeConsole, run: checkConsoleOpen,
	},
	{
		ID:       "console/refused",
		Title:    "refuses the console of an unknown uuid and of an instance that is off",
		Needs:    protocol.CapabilityConsole,
		Protects: "users, who would wait for a guest that says nothing, or have another one",
		Rule: "Console of a uuid that Spawn did not create returns InstanceNotFound; of an instance that does " +
			"not run, InstanceFault.",
		See: seeConsole,
		run: checkConsoleRefused,
	},
}

func (p *proc) consoleLog(ctx context.Context, node, id string, maxBytes int64) ([]byte, error) {
	reply, err := rpc(ctx, p, p.limits.Instance, func(ctx context.Context) (*driverv1.ConsoleLogResponse, error) {
		return p.Instances().ConsoleLog(ctx, &driverv1.ConsoleLogRequest{Node: node, Uuid: id, MaxBytes: maxBytes})
	})
	return reply.GetLog(), err
}

func checkConsoleLog(ctx context.Context, b *Bench) error {
	_, p, m, err := b.existing(ctx)
	if err != nil {
		return err
	}
	for _, state := range []driverv1.PowerState{running, shutdown} {
		if state == shutdown && p.mustSetPower(ctx, m, shutdown, true) != nil {
			return notRun("the driver does not stop the instance; see instances/power")
		}
		for _, maxBytes := range []int64{protocol.MaxConsoleLog, 1} {
			log, err := p.consoleLog(ctx, m.node, m.spec.GetUuid(), maxBytes)
			sent := fmt.Sprintf("ConsoleLog of instance %s, which is %s, with max_bytes %d",
				m.spec.GetUuid(), powerName(state), maxBytes)
			switch {
			case kind(err) == protocol.KindInstanceFault:
				return notRun("the driver keeps no console log of its instances with this configuration (%s)",
					describe(err))
			case err != nil:
				return failf(sent, "%s", describe(err))
			case int64(len(log)) > maxBytes:
				return failf(sent, "a response of %d bytes", len(log))
			}
		}
	}
	return nil
}

func checkConsoleLogUnknown(ctx context.Context, b *Bench) error {
	base, p, _, err := b.newInstance(ctx)
	if err != nil {
		return err
	}
	if _, err := p.consoleLog(ctx, base.node, uuid.NewString(), 1024); kind(err) != protocol.KindInstanceNotFound {
		return failf("ConsoleLog of an unknown uuid", "%s", verdict(err))
	}
	return nil
}

// console opens a console and ends it when it has shown that it is open.
func (p *proc) console(ctx context.Context, node, id string) error {
	_, err := rpc(ctx, p, p.limits.Instance, func(ctx context.Context) (*driverv1.ConsoleResponse, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err := p.Instances().Console(ctx)
		if err != nil {
			return nil, err
		}
		open := &driverv1.OpenConsole{Node: node, Uuid: id}
		if err := stream.Send(&driverv1.ConsoleRequest{Part: &driverv1.ConsoleRequest_Open{Open: open}}); err != nil &&
			!errors.Is(err, io.EOF) {
			return nil, err
		}
		m, err := stream.Recv()
		if err == nil && m.GetOpened() == nil {
			err = errors.New("the first message is not opened")
		}
		if err != nil {
			return nil, err
		}
		if err := stream.CloseSend(); err != nil {
			return nil, err
		}
		for err == nil { // what the guest writes until the plugin has given it back
			_, err = stream.Recv()
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return m, err
	})
	return err
}

func checkConsoleOpen(ctx context.Context, b *Bench) error {
	_, p, m, err := b.existing(ctx)
	if err != nil {
		return err
	}
	for _, nth := range []string{"Console of instance ", "a second Console, after the end of the first, of instance "} {
		err := p.console(ctx, m.node, m.spec.GetUuid())
		switch {
		case kind(err) == protocol.KindInstanceFault && nth == "Console of instance ":
			return notRun("the driver's instances have no serial console with this configuration (%s)", describe(err))
		case err != nil:
			return failf(nth+m.spec.GetUuid(), "%s", describe(err))
		}
	}
	return nil
}

func checkConsoleRefused(ctx context.Context, b *Bench) error {
	_, p, m, err := b.existing(ctx)
	if err != nil {
		return err
	}
	if err := p.console(ctx, m.node, uuid.NewString()); kind(err) != protocol.KindInstanceNotFound {
		return failf("Console of an unknown uuid", "%s", verdict(err))
	}
	if p.mustSetPower(ctx, m, shutdown, true) != nil {
		return notRun("the driver does not stop the instance; see instances/power")
	}
	if err := p.console(ctx, m.node, m.spec.GetUuid()); kind(err) != protocol.KindInstanceFault {
		return failf("Console of instance "+m.spec.GetUuid()+", which is shut down", "%s", verdict(err))
	}
	return nil
}
