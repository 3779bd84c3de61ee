// SPDX-License-Identifier: Apache-2.0

package driverclient

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/compute-agent/compute-agent/plugins"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// bytesOnly is a codec of a server that neither reads nor writes messages.
type bytesOnly struct{}

func (bytesOnly) Name() string { return "proto" }
func (bytesOnly) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}
func (bytesOnly) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// hostile is a process that answers every call with these bytes, or this error.
func hostile(t testing.TB, receives int, bytes []byte, err error) *Client {
	t.Helper()
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer(grpc.ForceServerCodecV2(bytesOnly{}), grpc.MaxRecvMsgSize(receives),
		grpc.MaxSendMsgSize(1<<30), // it is what a server of another make does
		grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
			var request []byte
			if failed := stream.RecvMsg(&request); failed != nil {
				return failed
			}
			if err != nil {
				return err
			}
			return stream.SendMsg(bytes)
		}))
	ended := make(chan struct{})
	go func() { defer close(ended); _ = server.Serve(listener) }()
	conn, failed := grpc.NewClient(
		"passthrough:///hostile",
		append(DialOptions("x", nil), grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(
				func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))...)
	testproc.Check(t, failed)
	t.Cleanup(func() { _ = conn.Close(); server.Stop(); <-ended })
	c := New("x", conn, "", Timeouts{Info: patience, Configure: patience, Health: patience,
		Nodes: patience, Update: patience}, false)
	c.info.Capabilities = []string{protocol.CapabilityGuests}
	return c
}

// TestCapabilitiesHaveTheirCurrentNames, whether a plugin announces the current one, that of
// release 0.2.0 or both.
func TestCapabilitiesHaveTheirCurrentNames(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for announced, want := range map[string]string{"shapes watch": "layouts watch",
		"layouts shapes": "layouts", "layouts": "layouts"} {
		reply := testproc.Try(
			proto.Marshal(&driverv1.InfoResponse{Name: "x", Version: "1", Capabilities: strings.Fields(announced)})).
			Or(t)
		p := hostile(t, 1<<20, reply, nil)
		info := testproc.Try(p.Info(t.Context())).Or(t)
		if got := strings.Join(info.Capabilities, " "); got != want {
			t.Errorf("%q: %q, want %q", announced, got, want)
		}
		testproc.Check(t, p.checkCapability("ReshapeStep", protocol.CapabilityLayouts))
	}
}

// TestRepliesThatCannotBeDecoded: every call that gets one fails with a defect of the plugin.
func TestRepliesThatCannotBeDecoded(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, call := range map[string]func(c *Client) error{
		"Info":   func(c *Client) error { _, err := c.Info(context.Background()); return err },
		"Health": func(c *Client) error { _, err := c.Health(context.Background()); return err },
		"Configure": func(c *Client) error {
			return c.Configure(context.Background(), nil, plugins.HostInfo{}, *c.timeouts.Load())
		},
		"AvailableNodes": func(c *Client) error { _, err := c.AvailableNodes(context.Background()); return err },
		"Guests": func(c *Client) error {
			_, err := c.Guests(context.Background(), oneNode(t), "cn1")
			return err
		},
		"Watch": func(c *Client) error { return c.Watch(context.Background(), func(string) {}) },
		"UpdateProviderTree": func(c *Client) error {
			_, err := c.UpdateProviderTree(context.Background(), oneNode(t), "cn1", nil)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			var failed *CallError
			var defect *FaultError
			if err := call(hostile(t, protocol.MaxMessage, []byte{0xff}, nil)); !errors.As(err, &defect) ||
				!errors.As(err, &failed) || failed.Call != name {
				t.Errorf("garbage: %v", err)
			}
		})
	}
}

// TestMessagesOfTheLargestSize: 16 MiB pass in both directions, and a byte more is refused with
// words that say whose it is.
func TestMessagesOfTheLargestSize(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	reply := func(size int) []byte {
		raw := testproc.Try(proto.Marshal(&driverv1.AvailableNodesResponse{})).Or(t)
		// of a field that this version does not know: a tag, and a length of 4 bytes
		padding := make([]byte, size-len(raw)-6)
		return append(raw, protowire.AppendBytes(protowire.AppendTag(nil, 2000, protowire.BytesType), padding)...)
	}
	fits, over := reply(protocol.MaxMessage), reply(protocol.MaxMessage+1)
	if len(fits) != protocol.MaxMessage {
		t.Fatalf("%d bytes", len(fits))
	}
	if _, err := hostile(t, protocol.MaxMessage, fits, nil).AvailableNodes(context.Background()); err != nil {
		t.Errorf("a reply of 16 MiB: %v", err)
	}
	_, err := hostile(t, protocol.MaxMessage, over, nil).AvailableNodes(context.Background())
	if want := "(a message has at most 16 MiB"; !errors.Is(err, ErrBadReply) ||
		!strings.Contains(fmt.Sprint(err), want) {
		t.Errorf("a reply of a byte more: %v", err)
	}

	request := func(size int) *providertree.Tree {
		tree := oneNode(t)
		set := func(n int) int {
			unit := providertree.Resource{Identifier: "x", Metadata: strings.Repeat("m", n)}
			testproc.Try(tree.SetResources(rootUUID, map[string][]providertree.Resource{"CUSTOM_X": {unit}})).Or(t)
			return proto.Size(&driverv1.GuestsRequest{Tree: protocol.FromTree(tree), Node: "cn1"})
		}
		n := size - 1000
		n += size - set(n)
		if got := set(n); got != size {
			t.Fatalf("%d bytes, want %d", got, size)
		}
		return tree
	}
	if _, err := hostile(t, protocol.MaxMessage, nil, nil).
		Guests(context.Background(), request(protocol.MaxMessage), "cn1"); err != nil {
		t.Errorf("a request of 16 MiB: %v", err)
	}
	_, err = hostile(t, protocol.MaxMessage, nil, nil).
		Guests(context.Background(), request(protocol.MaxMessage+1), "cn1")
	judge(t, err, "driver x: Guests: the request has 16777217 bytes, and a message has at most 16777216 (16 MiB): "+
		"the provider tree and its allocations are too large for a plugin", nil)
	if errors.Is(err, ErrBadReply) {
		t.Error("that is not the plugin's fault")
	}
	// A plugin with gRPC's own limit, which is what one in another language has if its author
	// forgot.
	_, err = hostile(t, 4<<20, nil, nil).Guests(context.Background(), request(5<<20), "cn1")
	if want := "(a message has at most 16 MiB in both directions, and a plugin must allow that)"; !errors.Is(err,
		ErrBadReply) || !strings.Contains(fmt.Sprint(err), want) {
		t.Errorf("a plugin that takes 4 MiB: %v", err)
	}
}

// TestHostileErrorsAreSanitized: what a driver says in errors ends on terminals and in logs.
func TestHostileErrorsAreSanitized(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const evil = "\x1b]0;owned\a line\r\n{\"level\":\"info\"}\n\u202egnp.exe\x00\u2028"
	const sanitized = `\u001b]0;owned\u0007 line; {"level":"info"}; \u202egnp.exe\u0000`
	st, err := status.New(codes.Aborted, evil).
		WithDetails(&driverv1.ReshapeFailed{Reason: evil, Offenders: []*driverv1.Offender{
			{ConsumerUuid: evil, ProviderUuid: evil, ResourceClass: evil, Problem: evil}}})
	testproc.Check(t, err)
	_, err = hostile(t, protocol.MaxMessage, nil, st.Err()).UpdateProviderTree(context.Background(), oneNode(t),
		"cn1", providertree.Allocations{})
	judge(t, err, "driver x: UpdateProviderTree: "+sanitized, nil)
	var failed *plugins.ReshapeFailed
	if !errors.As(err, &failed) {
		t.Fatalf("UpdateProviderTree: got %v, want a ReshapeFailed", err)
	}
	want := &plugins.ReshapeFailed{Reason: sanitized,
		Violations: []plugins.Violation{{Consumer: sanitized, Provider: sanitized,
			Class: sanitized, Problem: sanitized}}}
	testproc.Same(t, cmp.Diff(want, failed))
	for _, code := range []codes.Code{codes.Unknown, codes.Internal, codes.Unavailable, codes.ResourceExhausted,
		codes.Unimplemented, codes.Canceled, 4711} {
		_, err := hostile(t, protocol.MaxMessage, nil, status.Error(code, evil)).AvailableNodes(context.Background())
		if err == nil || printable(err.Error(), 1000) != err.Error() {
			t.Errorf("AvailableNodes that fails with %v: got %q, want it printable", code, err)
		}
	}

	many := &driverv1.ReshapeFailed{Offenders: make([]*driverv1.Offender, 10_000)}
	for i := range many.Offenders {
		many.Offenders[i] = &driverv1.Offender{Problem: strings.Repeat("x", 100)}
	}
	if st, err = status.New(codes.Aborted, "").WithDetails(many); err != nil {
		t.Fatal(err)
	}
	_, err = hostile(t, protocol.MaxMessage, nil, st.Err()).AvailableNodes(context.Background())
	if !errors.As(err, &failed) || len(failed.Violations) != 502 || failed.Violations[501].Problem != "and 9499 more" {
		t.Errorf("%d violations", len(failed.Violations))
	}
	many.Offenders[0].Problem = strings.Repeat("x", maxHeaders)
	if st, err = status.New(codes.Aborted, "").WithDetails(many); err != nil {
		t.Fatal(err)
	}
	if _, err = hostile(t, protocol.MaxMessage, nil, st.Err()).AvailableNodes(context.Background()); err == nil ||
		errors.As(err, &failed) && len(failed.Violations) > 502 {
		t.Errorf("%.200v", err)
	}
}

func TestHostileHealthAndIdentityAreSanitized(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	raw := testproc.Try(proto.Marshal(&driverv1.HealthResponse{
		Problem:  "\x1b[2Jgone\nwrong" + strings.Repeat("x", 10_000),
		Warnings: []*driverv1.Warning{{Name: "fan", Text: "\x1b[2Jloud\nlevel=error"}},
	})).Or(t)
	p := hostile(t, protocol.MaxMessage, raw, nil)
	p.info.Capabilities = []string{protocol.CapabilityWarnings}
	warnings, err := p.Health(context.Background())
	testproc.Same(t, cmp.Diff([]plugins.Warning{{Name: "fan", Text: `\u001b[2Jloud; level=error`}}, warnings))
	if want := `\u001b[2Jgone; wrongxx`; err == nil ||
		!strings.HasPrefix(err.Error(), want) || len(err.Error()) > 2003 {
		t.Errorf("%.100v", err)
	}
}
