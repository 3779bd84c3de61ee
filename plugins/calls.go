// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
)

// options returns those of the gRPC server: limits and interceptors.
func (s *server) options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(protocol.MaxMessage),
		grpc.MaxSendMsgSize(protocol.MaxMessage),
		grpc.ChainUnaryInterceptor(s.aroundCall),
		grpc.ChainStreamInterceptor(s.aroundStream),
	}
}

// aroundCall gives a call its logger, rejects it during the shutdown, and converts panics and
// errors to statuses. It does not change calls of go-plugin's own services.
func (s *server) aroundCall(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler,
) (any, error) {
	if !s.isDriverService(info.Server) {
		return next(ctx, req)
	}
	reclaimOutput()
	op := operation(info.FullMethod)
	switch info.FullMethod {
	case driverv1.Plugin_Shutdown_FullMethodName: // it waits for the others
	default:
		if !s.calls.begin() {
			return nil, status.Error(codes.Unavailable, "the plugin is shutting down")
		}
		defer s.calls.end()
	}
	var reply any
	err := s.guarded(ctx, op, func(ctx context.Context) (err error) {
		reply, err = next(ctx, req)
		return err
	})
	if err != nil {
		return nil, err
	}
	return reply, nil
}

func (s *server) aroundStream(
	srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler,
) error {
	if !s.isDriverService(srv) {
		return next(srv, stream)
	}
	return s.guarded(stream.Context(), operation(info.FullMethod),
		func(context.Context) error { return next(srv, stream) })
}

// isDriverService reports whether a service is one of the driver protocol.
func (s *server) isDriverService(service any) bool {
	return service == any(s) || service == any(s.instances)
}

// operation returns the Go name of a method.
func operation(fullMethod string) string {
	switch fullMethod {
	case driverv1.Instances_List_FullMethodName:
		return "Instances"
	case driverv1.Instances_Watch_FullMethodName:
		return "WatchInstances"
	}
	return path.Base(fullMethod)
}

// guarded runs driver code with a logger in the context, and converts panics and errors to
// statuses.
func (s *server) guarded(ctx context.Context, op string, call func(context.Context) error) (err error) {
	ctx = withReceivedRequest(ctx)
	fields := s.log.With().Str("call", op)
	if id := RequestID(ctx); id != "" {
		fields = fields.Str(protocol.RequestIDField, id)
	}
	log := fields.Logger()
	defer func() {
		if p := recover(); p != nil {
			s.panics.record(log, op, p)
			err = status.Errorf(codes.Internal, "the driver panicked in %s: %v (its stack is in the log)", op, p)
		}
	}()
	return toStatus(ctx, call(log.WithContext(ctx)))
}

// sdkError is a status of the SDK itself. A status that is wrapped in a driver's error comes from
// another service, and must not reach the agent, which would take it for a problem of the
// connection ("unavailable", "unimplemented").
type sdkError struct{ *status.Status }

func (s *sdkError) Error() string { return s.Err().Error() }

// GRPCStatus returns the status to send.
func (s *sdkError) GRPCStatus() *status.Status { return s.Status }

func refuse(code codes.Code, format string, args ...any) error {
	return &sdkError{status.Newf(code, format, args...)}
}

// toStatus converts a driver's error to a status of the protocol. DeadlineExceeded and Canceled are
// used only if ctx, the call's own context, has ended.
func toStatus(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	f := protocol.Failure{Message: err.Error()}
	var reshape *ReshapeFailed
	var config *ConfigError
	var needed *ReshapeNeeded
	var notReady *NotReady
	var notFound *InstanceNotFound
	var fault *InstanceFault
	switch {
	case errors.As(err, &reshape):
		f.Kind, f.Words, f.Hint = protocol.KindReshapeFailed, reshape.Reason, reshape.Hint
		for _, v := range reshape.Violations {
			f.Violations = append(f.Violations, protocol.Violation(v))
		}
	case errors.As(err, &config):
		f.Kind, f.Key, f.Words = protocol.KindConfigError, config.Key, config.Problem
		for _, p := range config.All()[1:] {
			f.More = append(f.More, protocol.KeyProblem{Key: p.Key, Problem: p.Problem})
		}
	case errors.As(err, &needed):
		f.Kind, f.Words = protocol.KindReshapeNeeded, needed.Reason
	case errors.Is(err, ErrReshapeNeeded):
		f.Kind = protocol.KindReshapeNeeded
	case errors.As(err, &notReady):
		f.Kind, f.Words = protocol.KindNotReady, notReady.Reason
	case errors.Is(err, ErrNotReady):
		f.Kind = protocol.KindNotReady
	case errors.As(err, &fault):
		f.Kind, f.UUID, f.Words = protocol.KindInstanceFault, fault.UUID, fault.Reason
	case errors.As(err, &notFound):
		f.Kind, f.UUID = protocol.KindInstanceNotFound, notFound.UUID
	case errors.Is(err, ErrInstanceNotFound):
		f.Kind = protocol.KindInstanceNotFound
	case errors.Is(err, ErrUnsupported):
		f.Kind = protocol.KindUnsupported
	default:
		if own := (*sdkError)(nil); errors.As(err, &own) {
			return own.Err()
		}
		if ended := ctx.Err(); ended != nil && errors.Is(err, ended) {
			return status.Error(status.FromContextError(ended).Code(), err.Error())
		}
	}
	return f.Err()
}

// reclaimOutput sets os.Stdout and os.Stderr to the process' standard error again. go-plugin
// replaces them with pipes that block the writer when the agent does not read them.
func reclaimOutput() {
	reclaim.Do(func() {
		if startedByAgent() {
			os.Stdout, os.Stderr = stderr, stderr
		}
	})
}

var reclaim sync.Once

// mutex is a mutex whose lock obeys a context.
type mutex chan struct{}

func newMutex() mutex { return make(mutex, 1) }

func (m mutex) lock(ctx context.Context) error {
	select {
	case m <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("an earlier call of this driver has not returned: %w", ctx.Err())
	}
}

func (m mutex) unlock() { <-m }

// drain counts running calls, and rejects new ones once it is closed.
type drain struct {
	closing chan struct{} // closed by close

	mu      sync.Mutex
	running int
	closed  bool
	empty   chan struct{} // closed when no call runs after close
}

func newDrain() *drain { return &drain{closing: make(chan struct{}), empty: make(chan struct{})} }

func (d *drain) begin() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	d.running++
	return true
}

func (d *drain) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.running--; d.running == 0 && d.closed {
		close(d.empty)
	}
}

// close rejects new calls and waits until the running ones have ended.
func (d *drain) close(ctx context.Context) error {
	d.mu.Lock()
	if !d.closed {
		d.closed = true
		close(d.closing)
		if d.running == 0 {
			close(d.empty)
		}
	}
	d.mu.Unlock()
	select {
	case <-d.empty:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
