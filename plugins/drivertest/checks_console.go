// SPDX-License-Identifier: Apache-2.0

package drivertest

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"github.com/compute-agent/compute-agent/plugins/internal/protocol"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
)

const seeConsoleLog = "plugins.ConsoleLogger; proto: Instances.ConsoleLog"

var consoleChecks = []Check{
	{
		ID: "console-log/bounded", Title: "returns the end of a console log, and no more than is asked for", Needs: protocol.CapabilityConsoleLog,
		Protects: "an agent that asks for a screen, and a guest that wrote gigabytes",
		Rule:     "ConsoleLog returns at most max_bytes, the last ones, whether the instance runs or not.", See: seeConsoleLog, run: checkConsoleLog,
	},
	{
		ID: "console-log/unknown", Title: "returns InstanceNotFound for the log of an unknown uuid", Needs: protocol.CapabilityConsoleLog,
		Protects: "owners, who would see nothing or the log of another guest",
		Rule:     "ConsoleLog of a uuid that Spawn did not create returns InstanceNotFound.", See: seeConsoleLog, run: checkConsoleLogUnknown,
	},
}

func (p *proc) consoleLog(ctx context.Context, node, id string, most int64) ([]byte, error) {
	reply, err := ask(ctx, p, p.limits.Instance, func(ctx context.Context) (*driverv1.ConsoleLogResponse, error) {
		return p.Instances().ConsoleLog(ctx, &driverv1.ConsoleLogRequest{Node: node, Uuid: id, MaxBytes: most})
	})
	return reply.GetLog(), err
}

func checkConsoleLog(ctx context.Context, b *bench) error {
	_, p, m, err := b.existing(ctx)
	if err != nil {
		return err
	}
	for _, state := range []driverv1.PowerState{running, shutdown} {
		if state == shutdown && p.mustSetPower(ctx, m, shutdown, true) != nil {
			return notApplicable("the driver does not stop the instance; see instances/power")
		}
		for _, most := range []int64{protocol.MaxConsoleLog, 1} {
			log, err := p.consoleLog(ctx, m.node, m.spec.GetUuid(), most)
			sent := fmt.Sprintf("ConsoleLog of instance %s, which is %s, with max_bytes %d", m.spec.GetUuid(), powerName(state), most)
			switch {
			case kind(err) == protocol.KindInstanceFault:
				return notApplicable("the driver keeps no console log of its instances with this configuration (%s)", describe(err))
			case err != nil:
				return failf(sent, "%s", describe(err))
			case int64(len(log)) > most:
				return failf(sent, "a response of %d bytes", len(log))
			}
		}
	}
	return nil
}

func checkConsoleLogUnknown(ctx context.Context, b *bench) error {
	base, p, _, err := b.newInstance(ctx)
	if err != nil {
		return err
	}
	if _, err := p.consoleLog(ctx, base.node, uuid.NewString(), 1024); kind(err) != protocol.KindInstanceNotFound {
		return failf("ConsoleLog of an unknown uuid", "%s", verdict(err))
	}
	return nil
}
