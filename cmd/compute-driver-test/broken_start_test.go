// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/compute-agent/compute-agent/drivers/fake"
	"github.com/compute-agent/compute-agent/plugins"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
)

type (
	info      = *driverv1.InfoResponse
	configReq = *driverv1.ConfigureRequest
	nodesIs   = *driverv1.AvailableNodesResponse
	healthIs  = *driverv1.HealthResponse
)

var counter atomic.Int64

func accepts(part string) breakage {
	return around("Configure", func(_ *raw, _ context.Context, req any, next func() (any, error)) (any, error) {
		if strings.Contains(string(req.(configReq).GetConfigJson()), part) {
			return &driverv1.ConfigureResponse{}, nil
		}
		return next()
	})
}

var _ = broken(map[string]brokenPlugin{
	"prints before the handshake": {check: "start/handshake",
		breakage: breakage{start: func() { fmt.Println("starting up") }}},
	"has a name with a blank": {check: "start/info",
		breakage: after("Info", func(_ *raw, _ any, r info) { r.Name = "My Driver" })},
	"has a version that counts": {check: "start/info-repeated",
		breakage: after("Info", func(_ *raw, _ any, r info) { r.Version = fmt.Sprint(counter.Add(1)) })},
	"announces a capability twice": {check: "start/capabilities",
		breakage: breakage{capabilities: []string{"watch", "watch"}}},
	"locks its state directory": {check: "start/two-at-once", breakage: around("Configure", lockStateDir)},
	"has a schema that is a list": {check: "config/schema",
		breakage: instead("ConfigSchema", &driverv1.ConfigSchemaResponse{JsonSchema: []byte("[]")})},
	"has a schema that admits all": {check: "config/schema-strict",
		breakage: instead("ConfigSchema", &driverv1.ConfigSchemaResponse{JsonSchema: []byte(`{"type":"object"}`)})},
	"refuses to be without a daemon": {check: "config/accepted",
		breakage: fails("Configure", protocol.Failure{Kind: protocol.KindNotReady, Words: "no daemon"}.Err())},
	"can be configured once": {check: "config/repeated",
		breakage: around("Configure", func(s *raw, _ context.Context, _ any, next func() (any, error)) (any, error) {
			if s.configured.Load() {
				return nil, errors.New("configured already")
			}
			return next()
		})},
	"takes no bytes for an error": {check: "config/empty",
		breakage: around("Configure", func(_ *raw, _ context.Context, req any, next func() (any, error)) (any, error) {
			if len(req.(configReq).GetConfigJson()) == 0 {
				return nil, errors.New("unexpected end of JSON input")
			}
			return next()
		})},
	"ignores unknown keys":  {check: "config/unknown-key", breakage: accepts(unknownKey)},
	"does not name the key": {check: "config/names-key", breakage: around("Configure", configErrorWithoutKey)},
	"takes a list for an object": {check: "config/not-an-object",
		breakage: around("Configure", func(_ *raw, _ context.Context, req any, next func() (any, error)) (any, error) {
			if bytes.HasPrefix(req.(configReq).GetConfigJson(), []byte("[")) {
				return &driverv1.ConfigureResponse{}, nil
			}
			return next()
		})},
	"dies of half an object": {check: "config/not-an-object",
		breakage: around("Configure", func(_ *raw, _ context.Context, _ any, next func() (any, error)) (any, error) {
			reply, err := next()
			if err != nil {
				os.Exit(3)
			}
			return reply, err
		})},
	"converts types": {check: "config/wrong-type", breakage: accepts(`"capabilities":17`)},
	"forgets its configuration when it refuses one": {check: "config/keeps-former",
		breakage: around("Configure", func(s *raw, ctx context.Context, _ any, next func() (any, error)) (any, error) {
			reply, err := next()
			if err != nil {
				s.fake = fake.New()
				_ = s.fake.Configure(ctx, []byte("{}"), plugins.HostInfo{Name: "other"})
			}
			return reply, err
		})},

	"names no nodes": {check: "nodes/some",
		breakage: instead("AvailableNodes", &driverv1.AvailableNodesResponse{})},
	"is not ready": {check: "nodes/some",
		breakage: fails("AvailableNodes", protocol.Failure{Kind: protocol.KindNotReady, Words: "no daemon"}.Err())},
	"names a node twice": {check: "nodes/names",
		breakage: after("AvailableNodes", func(_ *raw, _ any, r nodesIs) { r.Nodes = append(r.Nodes, r.Nodes[0]) })},
	"has a node of no uuid": {check: "nodes/uuids",
		breakage: after("AvailableNodes", func(_ *raw, _ any, r nodesIs) { r.Nodes[0].Uuid = "cn1" })},
	"names new nodes only": {check: "nodes/repeated", breakage: after("AvailableNodes", func(_ *raw, _ any, r nodesIs) {
		if counter.Add(1) > 2 {
			r.Nodes = nil
		}
	})},
	"has a node with a uuid of chance": {check: "nodes/restart",
		breakage: after("AvailableNodes", func(_ *raw, _ any, r nodesIs) { r.Nodes[0].Uuid = chance })},

	"does not answer a health check": {check: "health/answers", hangs: true,
		breakage: around("Health", func(_ *raw, ctx context.Context, _ any, _ func() (any, error)) (any, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})},
	"answers no health check while it works": {check: "health/busy", hangs: true,
		breakage: breakage{around: healthWaits}},
	"warns of nothing by name": {check: "warnings/form", breakage: after("Health", func(_ *raw, _ any, r healthIs) {
		r.Warnings = []*driverv1.Warning{{Text: "x"}, {Name: "Fan 7", Text: "x"}, {Name: "a"}, {Name: "b", Text: "x"},
			{Name: "b", Text: "x"}, {Name: "c", Text: strings.Repeat("x", 2001)}}
	})},
	"warns of too much": {check: "warnings/form", breakage: after("Health", func(_ *raw, _ any, r healthIs) {
		for i := range 101 {
			r.Warnings = append(r.Warnings, &driverv1.Warning{Name: fmt.Sprint("w-", i), Text: "x"})
		}
	})},
	"warns before it is configured, of nothing": {check: "warnings/form",
		breakage: after("Health", func(s *raw, _ any, r healthIs) {
			if !s.configured.Load() {
				r.Warnings = []*driverv1.Warning{{}}
			}
		})},
	"has the time in the names of warnings": {check: "warnings/steady",
		breakage: after("Health", func(_ *raw, _ any, r healthIs) {
			r.Warnings = []*driverv1.Warning{{Name: fmt.Sprint("clock-", counter.Add(1)), Text: "x"}}
		})},
	"warns unannounced": {check: "warnings/announced", config: `{` + machine + `, "warnings": {"fan": "it is loud"}}`,
		breakage: breakage{capabilities: []string{protocol.CapabilityWatch}}},
	"watches only when it is configured": {check: "watch/first-sign",
		breakage: breakage{watch: func(s *raw, beat func() error, _ time.Duration) error {
			if !s.configured.Load() {
				return status.Error(codes.FailedPrecondition, "not configured")
			}
			return beat()
		}}},
	"sends one heartbeat": {check: "watch/heartbeat", hangs: true,
		breakage: breakage{watch: func(_ *raw, beat func() error, _ time.Duration) error {
			err := beat()
			time.Sleep(time.Minute)
			return err
		}}},
	"ends its watch": {check: "watch/lasts",
		breakage: breakage{watch: func(_ *raw, beat func() error, interval time.Duration) error {
			for range 4 {
				if err := beat(); err != nil {
					return err
				}
				time.Sleep(interval)
			}
			return nil
		}}},

	"fails to shut down": {check: "shutdown/answers",
		breakage: fails("Shutdown", errors.New("the daemon does not answer"))},
	"shuts down only when it was configured": {check: "shutdown/unconfigured",
		breakage: around("Shutdown", func(s *raw, _ context.Context, _ any, next func() (any, error)) (any, error) {
			if !s.configured.Load() {
				return nil, errors.New("not configured")
			}
			return next()
		})},
	"serves on after its shutdown": {check: "shutdown/refuses", breakage: breakage{serveAfterShutdown: true}},
	"drops calls when it shuts down": {check: "shutdown/drains",
		breakage: around("UpdateProviderTree",
			func(s *raw, ctx context.Context, req any, next func() (any, error)) (any, error) {
				reply, err := next()
				if len(req.(updateReq).GetTree().GetProviders()) < 1000 || counter.Add(1) == 1 {
					return reply, err
				}
				for ctx.Err() == nil {
					s.mu.Lock()
					closing := s.closing
					s.mu.Unlock()
					if closing {
						return nil, status.Error(codes.Aborted, "interrupted")
					}
					time.Sleep(time.Millisecond)
				}
				return nil, ctx.Err()
			})},
	"stays when it is to go": {check: "shutdown/exits", breakage: breakage{stays: true}},

	"prints": {check: "logs/structured", breakage: writes("Connecting to the hypervisor...\n")},
	"panics": {check: "logs/panics",
		breakage: writes("panic: runtime error: index out of range\n")},
	"writes dumps": {check: "logs/long-lines",
		breakage: writes(strings.Repeat("0123456789", 10_000) + "\n")},
	"floods": {check: "logs/flood",
		breakage: writes(strings.Repeat(logLine("debug", "polling"), 3000))},
	"logs an error": {check: "logs/errors",
		also: "tree/answers", breakage: writes(logLine("error", "no GPU found"))},
	"logs whatever the level is": {check: "logs/level", breakage: writes(logLine("debug", "polling"))},
	"logs its password": {check: "logs/secrets", config: `{"password": "hunter22"}`,
		breakage: around("Configure", func(_ *raw, _ context.Context, req any, next func() (any, error)) (any, error) {
			r := req.(configReq)
			_, _ = rawStderr.WriteString(
				logLine("info", "configured with "+strings.ReplaceAll(string(r.GetConfigJson()), `"`, "'")))
			r.ConfigJson = bytes.ReplaceAll(r.GetConfigJson(), []byte(`"password": "hunter22"`), nil)
			return next()
		})},
})

var chance = uuid.NewString()

func logLine(level, text string) string {
	return fmt.Sprintf("{\"@level\":%q,\"@message\":%q}\n", level, text)
}

// writes writes something with every tree.
func writes(text string) breakage {
	return around("UpdateProviderTree", func(_ *raw, _ context.Context, _ any, next func() (any, error)) (any, error) {
		_, _ = rawStderr.WriteString(text)
		return next()
	})
}

func lockStateDir(s *raw, _ context.Context, req any, next func() (any, error)) (any, error) {
	if !s.configured.Load() {
		fd, err := unix.Open(filepath.Join(req.(configReq).GetHost().GetStateDir(), "lock"),
			unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
		if err != nil {
			return nil, err
		}
		if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
			return nil, fmt.Errorf("the state directory is locked: %w", err)
		}
	}
	return next()
}

func configErrorWithoutKey(_ *raw, _ context.Context, _ any, next func() (any, error)) (any, error) {
	reply, err := next()
	if err != nil {
		err = protocol.Failure{Kind: protocol.KindConfigError, Words: "something is wrong"}.Err()
	}
	return reply, err
}

var working atomic.Int32

func healthWaits(_ *raw, ctx context.Context, call string, _ any, next func() (any, error)) (any, error) {
	switch call {
	case "UpdateProviderTree":
		working.Add(1)
		defer working.Add(-1)
		defer time.Sleep(time.Second)
	case "Health":
		for working.Load() > 0 && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
	}
	return next()
}
