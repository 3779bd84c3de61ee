// SPDX-License-Identifier: Apache-2.0

package driverclient

import (
	"context"
	"fmt"
	"path"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
)

// maxHeaders bounds the headers and trailers of a response, which carry the details of errors, in
// bytes.
const maxHeaders = 4 << 20

// Observer is called before each call of a plugin in the goroutine of its caller. A call is a name
// such as "Driver/UpdateProviderTree". Of is the context to call with, and traceparent the W3C
// trace context that the plugin is given, "" for none; done gets the error.
type Observer func(ctx context.Context, plugin, call string) (of context.Context, traceparent string, done func(error))

// DialOptions are the options of a plugin's connection: one size for messages in both directions,
// the request id of each call, and an observer of calls, or nil.
func DialOptions(plugin string, observe Observer) []grpc.DialOption {
	opts := []grpc.DialOption{
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(protocol.MaxMessage),
			grpc.MaxCallSendMsgSize(protocol.MaxMessage)),
		grpc.WithMaxHeaderListSize(maxHeaders),
		grpc.WithChainUnaryInterceptor(sendRequestID, explainOversized),
	}
	if observe != nil {
		opts = append(opts, grpc.WithChainUnaryInterceptor(observing(plugin, observe)))
	}
	return opts
}

// sendRequestID sends the id of the request that a call serves.
func sendRequestID(
	ctx context.Context, method string, request, reply any,
	conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	if id := plugins.RequestID(ctx); id != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, protocol.RequestIDKey, id)
	}
	return invoke(ctx, method, request, reply, conn, opts...)
}

// observing reports each call to an observer.
func observing(plugin string, observe Observer) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn,
		invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		service, call := path.Split(method) // /compute.driver.v1.Driver/ and UpdateProviderTree
		of, traceparent, done := observe(ctx, plugin, service[strings.LastIndexByte(service, '.')+1:]+call)
		if traceparent != "" {
			of = metadata.AppendToOutgoingContext(of, protocol.TraceparentKey, traceparent)
		}
		err := invoke(of, method, request, reply, conn, opts...)
		done(err)
		return err
	}
}

// oversizedRequest is a request that is too large for a message. It was not sent.
type oversizedRequest struct{ size int }

func (o *oversizedRequest) Error() string {
	return fmt.Sprintf("the request has %d bytes, and a message has at most %d (%d MiB): the provider tree and its "+
		"allocations are too large for a plugin", o.size, protocol.MaxMessage, protocol.MaxMessage>>20)
}

// GRPCStatus returns gRPC's own code for it.
func (o *oversizedRequest) GRPCStatus() *status.Status {
	return status.New(codes.ResourceExhausted, o.Error())
}

// explainOversized distinguishes a request that is too large to send from one that the plugin
// rejects: gRPC has one code for both.
func explainOversized(
	ctx context.Context, method string, request, reply any,
	conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	err := invoke(ctx, method, request, reply, conn, opts...)
	if m, ok := request.(proto.Message); ok && status.Code(err) == codes.ResourceExhausted {
		if n := proto.Size(m); n > protocol.MaxMessage {
			return &oversizedRequest{n}
		}
	}
	return err
}

// Timeouts are the deadlines of a plugin's start, calls and stop.
type Timeouts struct {
	Handshake time.Duration // from exec to the connection; default 30 s: a hypervisor that boots is busy
	Info      time.Duration // default 5 s
	Configure time.Duration // default 30 s
	Nodes     time.Duration // AvailableNodes, NodeDeleted; default 30 s
	Update    time.Duration // UpdateProviderTree, ReshapeStep, Guests, Instances; default 60 s
	Instance  time.Duration // Spawn, Destroy, SetPower; default 10 min
	Health    time.Duration // one health check; default 3 s
	Stop      time.Duration // Shutdown, before the process is killed; default 10 s
}

// WithDefaults returns t with the agent's defaults instead of zeros.
func (t Timeouts) WithDefaults() Timeouts {
	fill := func(limit *time.Duration, standard time.Duration) {
		if *limit <= 0 {
			*limit = standard
		}
	}
	fill(&t.Handshake, 30*time.Second)
	fill(&t.Info, 5*time.Second)
	fill(&t.Configure, 30*time.Second)
	fill(&t.Nodes, 30*time.Second)
	fill(&t.Update, 60*time.Second)
	fill(&t.Instance, 10*time.Minute)
	fill(&t.Health, 3*time.Second)
	fill(&t.Stop, 10*time.Second)
	return t
}

// Longest returns how long a running call can still take.
func (t Timeouts) Longest() time.Duration { return max(t.Configure, t.Nodes, t.Update, t.Instance) }
