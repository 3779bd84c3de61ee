// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"fmt"
	"reflect"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/compute-agent/compute-agent/plugins/internal/wire"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
)

// A message of 64 MiB can hold 32 million empty resource providers, which would take 8 GiB when they are unpacked, and that is long before
// anybody could count them. So the memory that a large message will take is estimated before it is unpacked.
const (
	maxUnpacked   = 256 << 20 // bytes; a tree of 50,000 providers or the allocations of 100,000 consumers take about half
	maxUnexamined = 256 << 10 // bytes on the wire; what is smaller cannot become too large
	maxHeaders    = 4 << 20   // bytes of the headers of a reply, in which the details of errors travel
)

// refusal is a reply that was refused before it was unpacked, or could not be.
type refusal struct{ problem string }

func (e *refusal) Error() string { return e.problem }

// GRPCStatus is what gRPC itself says of a message that it cannot unpack.
func (e *refusal) GRPCStatus() *status.Status { return status.New(codes.Internal, e.problem) }

// oversized is a request that is too large for a message.
type oversized struct{ size int }

func (e *oversized) Error() string {
	return fmt.Sprintf("the request has %d bytes, and a message at most %d (%d MiB): the provider tree and its allocations are too large to be shown to a plugin",
		e.size, wire.MaxMessage, wire.MaxMessage>>20)
}

// GRPCStatus is what gRPC itself says of it.
func (e *oversized) GRPCStatus() *status.Status {
	return status.New(codes.ResourceExhausted, e.Error())
}

// inspecting are the options of a connection on which everything that arrives is inspected.
func inspecting() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(wire.MaxMessage), grpc.MaxCallSendMsgSize(wire.MaxMessage)),
		grpc.WithMaxHeaderListSize(maxHeaders),
		grpc.WithChainUnaryInterceptor(inspectCall),
		grpc.WithChainStreamInterceptor(inspectStream),
	}
}

func inspectCall(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	c := newInspector(opts)
	err := invoke(ctx, method, request, reply, conn, append(opts, grpc.ForceCodecV2(c))...)
	if c.refused != nil {
		return c.refused
	}
	if m, ok := request.(proto.Message); ok && status.Code(err) == codes.ResourceExhausted {
		if n := proto.Size(m); n > wire.MaxMessage {
			return &oversized{n}
		}
	}
	return err
}

func inspectStream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	c := newInspector(opts)
	stream, err := open(ctx, desc, conn, method, append(opts, grpc.ForceCodecV2(c))...)
	if err != nil {
		return nil, err
	}
	return &inspectedStream{stream, c}, nil
}

type inspectedStream struct {
	grpc.ClientStream
	inspector *inspector
}

// RecvMsg is what the reader of the stream calls.
func (s *inspectedStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if s.inspector.refused != nil {
		return s.inspector.refused
	}
	return err
}

// inspector is the codec of one call. It remembers why it refused a message, since gRPC keeps the words only.
type inspector struct {
	encoding.CodecV2
	refused error
}

// newInspector inspects what the codec of a call is to unpack.
func newInspector(opts []grpc.CallOption) *inspector {
	c := &inspector{CodecV2: encoding.GetCodecV2(protocodec.Name)}
	for _, o := range opts {
		if own, ok := o.(grpc.ForceCodecV2CallOption); ok {
			c.CodecV2 = own.CodecV2
		}
	}
	return c
}

// Unmarshal unpacks a message unless it would take too much memory.
func (c *inspector) Unmarshal(data mem.BufferSlice, into any) error {
	err := c.unmarshal(data, into)
	if err != nil {
		c.refused = &refusal{err.Error()}
	}
	return err
}

func (c *inspector) unmarshal(data mem.BufferSlice, into any) error {
	if m, ok := into.(proto.Message); ok && data.Len() > maxUnexamined {
		flat := data.MaterializeToBuffer(mem.DefaultBufferPool())
		defer flat.Free()
		if err := examine(flat.ReadOnlyData(), m.ProtoReflect().Descriptor()); err != nil {
			return err
		}
		data = mem.BufferSlice{flat}
	}
	if err := c.CodecV2.Unmarshal(data, into); err != nil {
		return fmt.Errorf("it is no message of the protocol: %w", err)
	}
	return nil
}

// examine returns an error for a message that would take too much memory. Cost: O(bytes), a tenth of the time of unpacking.
func examine(packed []byte, desc protoreflect.MessageDescriptor) error {
	left := maxUnpacked
	if f := footprints[desc.FullName()]; f != nil && !f.fits(packed, &left) {
		return fmt.Errorf("its %d bytes would take more than %d MiB of memory: it repeats small things very often", len(packed), maxUnpacked>>20)
	}
	return nil
}

// footprint is what a message takes in memory, beside what is in its fields.
type footprint struct {
	size   int
	fields []*footprint // by number; nil: holds no messages
}

// fits subtracts what a message takes. It is false when nothing is left. What is no message fits: it will not be unpacked.
func (f *footprint) fits(packed []byte, left *int) bool {
	const atom = 16 // a string's header
	*left -= f.size
	for len(packed) > 0 && *left >= 0 {
		num, kind, n := protowire.ConsumeTag(packed)
		if n < 0 {
			return true
		}
		packed = packed[n:]
		if kind != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(num, kind, packed); n < 0 {
				return true
			}
			*left -= atom
			packed = packed[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(packed)
		if n < 0 {
			return true
		}
		packed = packed[n:]
		if int(num) < len(f.fields) && f.fields[num] != nil {
			if !f.fields[num].fits(value, left) {
				return false
			}
		} else {
			*left -= atom + len(value)
		}
	}
	return *left >= 0
}

// footprints of all messages of the protocol.
var footprints = func() map[protoreflect.FullName]*footprint {
	all := map[protoreflect.FullName]*footprint{}
	messages := driverv1.File_plugins_proto_driver_v1_driver_proto.Messages()
	for i := range messages.Len() {
		footprintOf(messages.Get(i), all)
	}
	return all
}()

func footprintOf(desc protoreflect.MessageDescriptor, all map[protoreflect.FullName]*footprint) *footprint {
	if f := all[desc.FullName()]; f != nil {
		return f
	}
	f := &footprint{size: 128} // an entry of a map, with its share of the map
	if t, err := protoregistry.GlobalTypes.FindMessageByName(desc.FullName()); err == nil {
		f.size = int(reflect.TypeOf(t.Zero().Interface()).Elem().Size()) + 8 // and the pointer to it
	}
	all[desc.FullName()] = f
	for i := range desc.Fields().Len() {
		field := desc.Fields().Get(i)
		if field.Message() == nil {
			continue
		}
		for len(f.fields) <= int(field.Number()) {
			f.fields = append(f.fields, nil)
		}
		f.fields[field.Number()] = footprintOf(field.Message(), all)
	}
	return f
}
