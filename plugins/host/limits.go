// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/compute-agent/compute-agent/plugins/internal/protocol"
)

// maxHeaders bounds the headers and trailers of a reply, in which the details of errors travel, in bytes.
const maxHeaders = 4 << 20

// limits are the options of a connection: one size for messages in both directions.
func limits() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(protocol.MaxMessage), grpc.MaxCallSendMsgSize(protocol.MaxMessage)),
		grpc.WithMaxHeaderListSize(maxHeaders),
		grpc.WithChainUnaryInterceptor(explainOversized),
	}
}

// oversized is a request that is too large for a message. It was not sent.
type oversized struct{ size int }

func (e *oversized) Error() string {
	return fmt.Sprintf("the request has %d bytes, and a message at most %d (%d MiB): the provider tree and its allocations are too large to be sent to a plugin",
		e.size, protocol.MaxMessage, protocol.MaxMessage>>20)
}

// GRPCStatus is what gRPC itself says of it.
func (e *oversized) GRPCStatus() *status.Status {
	return status.New(codes.ResourceExhausted, e.Error())
}

// explainOversized tells a request that is too large for us from one that the plugin refuses: gRPC has one code for both.
func explainOversized(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := invoke(ctx, method, request, reply, conn, opts...)
	if m, ok := request.(proto.Message); ok && status.Code(err) == codes.ResourceExhausted {
		if n := proto.Size(m); n > protocol.MaxMessage {
			return &oversized{n}
		}
	}
	return err
}
