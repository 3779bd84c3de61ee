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

	"github.com/compute-agent/compute-agent/plugins/internal/protocol"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
)

// options are those of the gRPC server: limits, and what surrounds every call.
func (s *server) options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(protocol.MaxMessage),
		grpc.MaxSendMsgSize(protocol.MaxMessage),
		grpc.ChainUnaryInterceptor(s.aroundCall),
		grpc.ChainStreamInterceptor(s.aroundStream),
	}
}

// aroundCall gives a call its logger, refuses it while shutting down, and turns panics and the package's errors into
// statuses. Calls of other services (go-plugin's own) pass.
func (s *server) aroundCall(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if !s.ours(info.Server) {
		return next(ctx, req)
	}
	reclaimOutput()
	op := operation(info.FullMethod)
	switch info.FullMethod {
	case driverv1.Plugin_Shutdown_FullMethodName: // waits for the others, so it is not one of them
	default:
		if !s.gate.enter() {
			return nil, status.Error(codes.Unavailable, "the plugin is shutting down")
		}
		defer s.gate.leave()
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

func (s *server) aroundStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if !s.ours(srv) {
		return next(srv, stream)
	}
	return s.guarded(stream.Context(), operation(info.FullMethod), func(context.Context) error { return next(srv, stream) })
}

// ours reports whether a service is one of the protocol.
func (s *server) ours(service any) bool { return service == any(s) || service == any(s.instances) }

// operation is what a driver's author calls a method.
func operation(fullMethod string) string {
	switch fullMethod {
	case driverv1.Instances_List_FullMethodName:
		return "Instances"
	case driverv1.Instances_Watch_FullMethodName:
		return "WatchInstances"
	}
	return path.Base(fullMethod)
}

// guarded runs driver code: with a logger in the context, a panic as an error, and errors as statuses.
func (s *server) guarded(ctx context.Context, op string, call func(context.Context) error) (err error) {
	log := s.log.With().Str("call", op).Logger()
	defer func() {
		if p := recover(); p != nil {
			s.panics.told(log, op, p)
			err = status.Errorf(codes.Internal, "the driver panicked in %s: %v (its stack is in the log)", op, p)
		}
	}()
	return toStatus(ctx, call(log.WithContext(ctx)))
}

// verdict is a status of the SDK's own. One that is wrapped in a driver's error is not: some other service gave it to the driver, and the
// agent would take it for a word about the connection to the plugin ("unavailable", "unimplemented").
type verdict struct{ *status.Status }

func (v *verdict) Error() string { return v.Err().Error() }

// GRPCStatus is what goes over the wire.
func (v *verdict) GRPCStatus() *status.Status { return v.Status }

func refuse(code codes.Code, format string, args ...any) error {
	return &verdict{status.Newf(code, format, args...)}
}

// toStatus is the one place where a driver's error becomes one of the protocol's. That time is over, or that the agent has no more use for
// an answer, is said only of the call itself: ctx.
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
		f.Kind, f.Words, f.Remedy = protocol.KindReshapeFailed, reshape.Reason, reshape.Remedy
		for _, o := range reshape.Offenders {
			f.Offenders = append(f.Offenders, protocol.Offender(o))
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
		if own := (*verdict)(nil); errors.As(err, &own) {
			return own.Err()
		}
		if ended := ctx.Err(); ended != nil && errors.Is(err, ended) {
			return status.Error(status.FromContextError(ended).Code(), err.Error())
		}
	}
	return f.Err()
}

// reclaimOutput points os.Stdout and os.Stderr back at the process' standard error. go-plugin replaces them by pipes that
// block the writer when nobody reads on the other side.
func reclaimOutput() {
	reclaim.Do(func() {
		if startedByAgent() {
			os.Stdout, os.Stderr = stderr, stderr
		}
	})
}

var reclaim sync.Once

// turn lets one call in at a time.
type turn chan struct{}

func newTurn() turn { return make(turn, 1) }

func (t turn) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("an earlier call of this driver has not returned: %w", ctx.Err())
	}
}

func (t turn) give() { <-t }

// gate counts the calls under way and can be closed to new ones.
type gate struct {
	closing chan struct{} // closed with the gate

	mu     sync.Mutex
	inside int
	closed bool
	empty  chan struct{} // closed when the gate is closed and nobody is inside
}

func newGate() *gate { return &gate{closing: make(chan struct{}), empty: make(chan struct{})} }

func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.inside++
	return true
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside--; g.inside == 0 && g.closed {
		close(g.empty)
	}
}

// close lets nobody in any more and waits until all have left.
func (g *gate) close(ctx context.Context) error {
	g.mu.Lock()
	if !g.closed {
		g.closed = true
		close(g.closing)
		if g.inside == 0 {
			close(g.empty)
		}
	}
	g.mu.Unlock()
	select {
	case <-g.empty:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
