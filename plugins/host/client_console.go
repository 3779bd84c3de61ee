// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"fmt"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/plugins/internal/protocol"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
)

var _ plugins.ConsoleLogger = (*Plugin)(nil)

// ConsoleLog returns the end of what an instance wrote to its console; see [plugins.ConsoleLogger]
// for the contract. It waits for no other call. Errors: as [Plugin.Instances];
// [plugins.ErrInstanceNotFound]; a [*plugins.InstanceFault].
func (p *Plugin) ConsoleLog(ctx context.Context, node, uuid string, most int) ([]byte, error) {
	return ask(ctx, p, "ConsoleLog "+uuid, func(s *activeProcess) ([]byte, error) { return s.ConsoleLog(ctx, node, uuid, most) })
}

// ConsoleLog returns the end of an instance's console log.
func (p *process) ConsoleLog(ctx context.Context, node, uuid string, most int) ([]byte, error) {
	const call = "ConsoleLog"
	uuid, problem := target(node, uuid)
	if problem == nil && (most < 1 || most > protocol.MaxConsoleLog) {
		problem = fmt.Errorf("%d bytes are asked for: must be 1 to %d", most, protocol.MaxConsoleLog)
	}
	if err := p.checkRequest(call, problem); err != nil {
		return nil, err
	}
	if err := p.checkCapability(call, protocol.CapabilityConsoleLog); err != nil {
		return nil, err
	}
	reply, err := manage(ctx, p, call, uuid, p.instances.ConsoleLog, &driverv1.ConsoleLogRequest{Node: node, Uuid: uuid, MaxBytes: int64(most)})
	if err != nil {
		return nil, err
	}
	if n := len(reply.GetLog()); n > most {
		return nil, p.badReply(call, fmt.Errorf("%d bytes of a console log, at most %d were asked for", n, most))
	}
	return reply.GetLog(), nil
}
