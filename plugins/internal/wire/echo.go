// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"fmt"
	"slices"
	"sync"

	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/providertree"
)

// In a steady pass agent and driver tell each other, every minute, the tree that both know. What follows keeps the encoding of the last
// one beside it, so that such a pass costs the comparison of some bytes and not four conversions. It changes nothing that is sent: a
// plugin of any other SDK, and a client of any other kind, sees the same messages.

// Encoded is the tree of a message as it is sent: the field with its tag and its length.
type Encoded []byte

// treeField is the number of the field in all messages that hold a tree.
const treeField protowire.Number = 1

// carrier is a message that holds a tree.
type carrier interface {
	proto.Message
	GetTree() *driverv1.ProviderTree
}

// encodeTree is the tree as a field. Cost: that of [FromTree] and of the encoding.
func encodeTree(tree *providertree.Tree) (Encoded, error) {
	msg := FromTree(tree)
	size := proto.Size(msg)
	out := make(Encoded, 0, size+16)
	out = protowire.AppendTag(out, treeField, protowire.BytesType)
	out = protowire.AppendVarint(out, uint64(size))
	return proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(out, msg)
}

// decode is the way back.
func (e Encoded) decode() (*driverv1.ProviderTree, error) {
	_, _, n := protowire.ConsumeTag(e)
	if n < 0 {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, protowire.ParseError(n))
	}
	body, n := protowire.ConsumeBytes(e[n:])
	if n < 0 {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, protowire.ParseError(n))
	}
	msg := &driverv1.ProviderTree{}
	if err := proto.Unmarshal(body, msg); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return msg, nil
}

// put adds an encoded tree to a message that has none. It is kept with the fields that the message does not know, which protobuf sends
// as they are.
func (e Encoded) put(msg carrier) { msg.ProtoReflect().SetUnknown([]byte(e)) }

// takeEncoded takes from a message the tree that was left encoded by [Codec], or nil.
func takeEncoded(msg carrier) Encoded {
	raw := msg.ProtoReflect().GetUnknown()
	if msg.GetTree() != nil || len(raw) == 0 {
		return nil
	}
	if number, kind, n := protowire.ConsumeTag(raw); n < 0 || number != treeField || kind != protowire.BytesType {
		return nil
	}
	msg.ProtoReflect().SetUnknown(nil)
	return Encoded(raw)
}

// Known is a tree with its encoding. It does not change.
type Known struct {
	tree    *providertree.Tree
	encoded Encoded
}

// Tree returns a copy, which shares its providers with all others.
func (k *Known) Tree() *providertree.Tree { return k.tree.Clone() }

// Put adds the tree to a message that has none.
func (k *Known) Put(msg *driverv1.UpdateProviderTreeRequest) { k.encoded.put(msg) }

// Memory holds the tree of each node that was last told. The zero value is empty and ready for use by any number of goroutines.
type Memory struct {
	mu     sync.Mutex
	byNode map[string]*Known
	bytes  int
}

// maxMemory bounds the encodings that a Memory holds, in bytes: some twenty trees of 10,000 providers. Beyond that some are forgotten,
// and encoded again when they are needed.
const maxMemory = 32 << 20

func (m *Memory) recall(node string) *Known {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.byNode[node]
}

func (m *Memory) remember(node string, tree *providertree.Tree, encoded Encoded) *Known {
	k := &Known{tree: tree.Clone(), encoded: encoded}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.byNode == nil {
		m.byNode = map[string]*Known{}
	}
	m.forget(node)
	for other := range m.byNode {
		if m.bytes+len(encoded) <= maxMemory {
			break
		}
		m.forget(other)
	}
	if m.bytes+len(encoded) <= maxMemory {
		m.byNode[node] = k
		m.bytes += len(encoded)
	}
	return k
}

// forget removes a node. m.mu is held.
func (m *Memory) forget(node string) {
	if k := m.byNode[node]; k != nil {
		m.bytes -= len(k.encoded)
		delete(m.byNode, node)
	}
}

// Encode returns the tree of a node with its encoding. Cost: O(providers) to find that it is the one of the last time; else it is
// encoded.
func (m *Memory) Encode(node string, tree *providertree.Tree) (*Known, error) {
	if k := m.recall(node); k != nil && k.tree.Same(tree) {
		return k, nil
	}
	encoded, err := encodeTree(tree)
	if err != nil {
		return nil, err
	}
	return m.remember(node, tree, encoded), nil
}

// Decode returns the tree of a request, to be edited. Known is what [Memory.Reply] wants to have back.
//
// Errors: those of [ToTree]. Cost: O(bytes) to find that it is the one of the last time; else it is decoded.
func (m *Memory) Decode(req *driverv1.UpdateProviderTreeRequest) (*providertree.Tree, *Known, error) {
	node, encoded := req.GetNode(), takeEncoded(req)
	if encoded == nil {
		tree, err := ToTree(req.GetTree())
		return tree, nil, err
	}
	k := m.recall(node)
	if k != nil && bytes.Equal(k.encoded, encoded) {
		return k.Tree(), k, nil
	}
	msg, err := encoded.decode()
	if err != nil {
		return nil, nil, err
	}
	var before *providertree.Tree
	if k != nil {
		before = k.tree
	}
	tree, err := ToTreeLike(msg, before) // it may be the same in another order of its maps
	if err != nil {
		return nil, nil, err
	}
	k = m.remember(node, tree, encoded)
	return tree, k, nil
}

// Reply adds the edited tree to a reply: as it came if it is what came.
func (m *Memory) Reply(reply *driverv1.UpdateProviderTreeResponse, came *Known, tree *providertree.Tree) {
	if came != nil && came.tree.Same(tree) {
		came.encoded.put(reply)
		return
	}
	reply.Tree = FromTree(tree)
}

// Codec is gRPC's for protobuf, but for the trees of UpdateProviderTree, which it does not decode: on the server's side for [Memory.Decode]
// to do, on the client's if they are those that were sent.
type Codec struct {
	sent   *Known
	echoed bool
}

var _ encoding.CodecV2 = (*Codec)(nil)

// ServerCodec is for all calls of a server.
func ServerCodec() *Codec { return &Codec{} }

// ClientCodec is for one call.
func ClientCodec(sent *Known) *Codec { return &Codec{sent: sent} }

// Echoed reports whether the reply holds the very tree that was sent. Its field is empty then.
func (c *Codec) Echoed() bool { return c.echoed }

// Name is that of the codec which it extends.
func (*Codec) Name() string { return protocodec.Name }

// Marshal is as usual.
func (*Codec) Marshal(v any) (mem.BufferSlice, error) {
	return encoding.GetCodecV2(protocodec.Name).Marshal(v)
}

// Unmarshal leaves out the tree of the two messages.
func (c *Codec) Unmarshal(data mem.BufferSlice, v any) error {
	switch msg := v.(type) {
	case *driverv1.UpdateProviderTreeRequest:
		if c.sent == nil {
			return c.split(data, msg, func(tree []byte) bool {
				Encoded(slices.Clone(tree)).put(msg)
				return true
			})
		}
	case *driverv1.UpdateProviderTreeResponse:
		if c.sent != nil {
			return c.split(data, msg, func(tree []byte) bool {
				c.echoed = bytes.Equal(tree, c.sent.encoded)
				return c.echoed
			})
		}
	}
	return encoding.GetCodecV2(protocodec.Name).Unmarshal(data, v)
}

// split decodes a message without its tree, if that is there once, and take, which must not keep it, takes it.
func (*Codec) split(data mem.BufferSlice, msg proto.Message, take func(tree []byte) bool) error {
	buf := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer buf.Free()
	raw := buf.ReadOnlyData()
	start, end, err := find(raw)
	if err != nil {
		return err
	}
	if start == end {
		return proto.Unmarshal(raw, msg)
	}
	if err := proto.Unmarshal(raw[:start], msg); err != nil {
		return err
	}
	if err := (proto.UnmarshalOptions{Merge: true}).Unmarshal(raw[end:], msg); err != nil {
		return err
	}
	if take(raw[start:end]) {
		return nil
	}
	return (proto.UnmarshalOptions{Merge: true}).Unmarshal(raw[start:end], msg)
}

// find returns where in a message its tree is, or twice the same place if it is not there, or more than once.
func find(raw []byte) (start, end int, err error) {
	for at := 0; at < len(raw); {
		number, kind, n := protowire.ConsumeTag(raw[at:])
		if n < 0 {
			return 0, 0, protowire.ParseError(n)
		}
		size := protowire.ConsumeFieldValue(number, kind, raw[at+n:])
		if size < 0 {
			return 0, 0, protowire.ParseError(size)
		}
		if number == treeField {
			if end > start || kind != protowire.BytesType {
				return 0, 0, nil
			}
			start, end = at, at+n+size
		}
		at += n + size
	}
	return start, end, nil
}
