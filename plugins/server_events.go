// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
)

// Watch sends the driver's events about nodes.
func (s *server) Watch(req *driverv1.WatchRequest, stream grpc.ServerStreamingServer[driverv1.WatchResponse]) error {
	watcher, ok := s.driver.(Watcher)
	if !ok {
		return missingCapability("watch")
	}
	p := pump[driverv1.WatchResponse]{
		server: s, call: "Watch", stream: stream, interval: req.GetHeartbeatMs(),
		heartbeat: &driverv1.WatchResponse{Event: &driverv1.WatchResponse_Heartbeat{Heartbeat: &driverv1.Heartbeat{}}},
	}
	return p.run(func(ctx context.Context, send func(*driverv1.WatchResponse)) error {
		return watcher.Watch(ctx, func(node string) {
			send(&driverv1.WatchResponse{Event: &driverv1.WatchResponse_Changed{Changed: &driverv1.Changed{Node: utf8(
				node)}}})
		})
	})
}

// Watch sends the driver's events about instances.
func (s *instanceServer) Watch(
	req *driverv1.WatchInstancesRequest, stream grpc.ServerStreamingServer[driverv1.WatchInstancesResponse],
) error {
	_, manages := s.server.driver.(InstanceManager)
	watcher, ok := s.server.driver.(InstanceWatcher)
	if !ok || !manages {
		return missingCapability("watch instances")
	}
	p := pump[driverv1.WatchInstancesResponse]{
		server: s.server, call: "WatchInstances", stream: stream, interval: req.GetHeartbeatMs(),
		heartbeat: &driverv1.WatchInstancesResponse{
			Event: &driverv1.WatchInstancesResponse_Heartbeat{Heartbeat: &driverv1.Heartbeat{}},
		},
	}
	return p.run(func(ctx context.Context, send func(*driverv1.WatchInstancesResponse)) error {
		return watcher.WatchInstances(ctx, func(node, uuid string) {
			send(&driverv1.WatchInstancesResponse{Event: &driverv1.WatchInstancesResponse_Instance{
				Instance: &driverv1.InstanceEvent{Node: utf8(node), Uuid: utf8(uuid)}}})
		})
	})
}

// pump sends a driver's events, and heartbeats.
type pump[E any] struct {
	*server
	call      string
	stream    grpc.ServerStreamingServer[E]
	interval  int64 // of heartbeats in milliseconds, as the agent requests
	heartbeat *E
}

// run lets watch follow the driver until the agent ends the stream, the plugin shuts down, or watch
// returns, which is an error.
func (p *pump[E]) run(watch func(ctx context.Context, send func(*E)) error) error {
	interval := time.Duration(p.interval) * time.Millisecond
	if p.interval <= 0 || p.interval > time.Minute.Milliseconds() {
		interval = protocol.HeartbeatInterval
	}
	ctx, cancel := context.WithCancel(p.stream.Context())
	defer cancel()
	events := make(chan *E)
	ended := make(chan error, 1)
	go func() {
		ended <- p.guarded(ctx, p.call, func(ctx context.Context) error {
			return watch(ctx, func(event *E) {
				select {
				case events <- event:
				case <-ctx.Done():
				}
			})
		})
	}()
	beat := time.NewTicker(interval)
	defer beat.Stop()
	if err := p.stream.Send(p.heartbeat); err != nil { // at once, so that the client knows that the stream works
		return err
	}
	for {
		event := p.heartbeat
		select {
		case event = <-events:
		case <-beat.C:
		case err := <-ended:
			if err == nil {
				return errors.New("the driver stopped watching")
			}
			return &sdkError{status.Convert(err)}
		case <-p.calls.closing:
			return refuse(codes.Unavailable, "the plugin is shutting down")
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := p.stream.Send(event); err != nil {
			return err
		}
	}
}
