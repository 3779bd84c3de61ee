// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"fmt"

	"github.com/compute-agent/compute-agent/plugins/internal/protocol"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
)

// ConsoleLog returns the end of an instance's console log. It waits for no other call: a guest that
// is asked to shut down writes to its console.
func (s *instanceServer) ConsoleLog(ctx context.Context, req *driverv1.ConsoleLogRequest) (*driverv1.ConsoleLogResponse, error) {
	if _, err := s.manager(); err != nil {
		return nil, err
	}
	logger, ok := s.server.driver.(ConsoleLogger)
	if !ok {
		return nil, lacks("keep console logs")
	}
	uuid, err := target(req)
	if err != nil {
		return nil, err
	}
	most := req.GetMaxBytes()
	if most < 1 || most > MaxConsoleLog {
		return nil, invalid(fmt.Errorf("max_bytes is %d: must be 1 to %d", most, int64(protocol.MaxConsoleLog)))
	}
	log, err := logger.ConsoleLog(ctx, req.GetNode(), uuid, int(most))
	if err != nil {
		return nil, ofInstance(uuid, err)
	}
	return &driverv1.ConsoleLogResponse{Log: log[max(0, len(log)-int(most)):]}, nil
}
