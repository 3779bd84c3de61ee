// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// client is the agent's side of a connection to a server in this process.
type client struct {
	driverv1.PluginClient
	driverv1.DriverClient
	instances driverv1.InstancesClient
	log       *strings.Builder
}

func serve(t *testing.T, d Driver) client {
	t.Helper()
	log := &strings.Builder{}
	s := newServer(d, zerolog.New(zerolog.SyncWriter(log)))
	g := grpc.NewServer(s.options()...)
	testproc.Check(t, (servedPlugin{srv: s}).GRPCServer(nil, g))
	lis := bufconn.Listen(1 << 20)
	served := make(chan error, 1)
	go func() { served <- g.Serve(lis) }()
	conn := testproc.Try(grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(protocol.MaxMessage)))).Or(t)
	t.Cleanup(func() {
		_ = conn.Close()
		g.Stop()
		testproc.NoError(t, <-served)
	})
	return client{driverv1.NewPluginClient(conn), driverv1.NewDriverClient(conn),
		driverv1.NewInstancesClient(conn), log}
}

func (c client) update(
	ctx context.Context, tree *providertree.Tree, allocations providertree.Allocations,
) (*driverv1.UpdateProviderTreeResponse, error) {
	return c.UpdateProviderTree(ctx, &driverv1.UpdateProviderTreeRequest{
		Tree: protocol.FromTree(tree), Node: "cn1", Allocations: protocol.FromAllocations(allocations),
	})
}

func oneNode(t *testing.T) *providertree.Tree {
	t.Helper()
	tree := &providertree.Tree{}
	testproc.Check(t, tree.AddRoot("11111111-2222-3333-4444-555555555555", "cn1"))
	return tree
}

func TestInfoNamesTheAbilities(t *testing.T) {
	for want, d := range map[string]Driver{"shutdown": &testDriver{}, "health shutdown watch": &watchingDriver{},
		"capabilities guests layouts node_deleted shutdown shapes": &ableDriver{},
		"instances instance_events shutdown":                       &managingDriver{}} {
		info := testproc.Try(serve(t, d).Info(context.Background(), &driverv1.InfoRequest{})).Or(t)
		if got := strings.Join(info.GetCapabilities(), " "); got != want || info.GetName() != "test" ||
			info.GetVersion() != "1.2.3" {
			t.Errorf("got %v, want %s", info, want)
		}
		var printed bytes.Buffer
		var description struct{ Capabilities []string }
		if code := printInfo(&printed, d); code != 0 || json.Unmarshal(printed.Bytes(), &description) != nil ||
			strings.Join(description.Capabilities, " ") != want {
			t.Errorf("--info ended with %d and printed %s, want %s", code, &printed, want)
		}
	}
}

func TestConfigureDefaultsToAnEmptyObject(t *testing.T) {
	d := &testDriver{}
	testproc.Try(serve(t, d).Configure(context.Background(),
		&driverv1.ConfigureRequest{Host: &driverv1.HostInfo{Name: "h"}})).Or(t)
	testproc.Equal(t, d.config, "h{}", "got %q")
}

func TestDriverEditsAValue(t *testing.T) {
	consumer := "99999999-2222-3333-4444-555555555555"
	d := &testDriver{update: func(_ context.Context,
		tree *providertree.Tree, a providertree.Allocations) (providertree.Allocations, error) {
		root := tree.Roots()[0]
		if _, err := tree.SetInventory(root, "VCPU", providertree.Inventory{Total: 4}); err != nil {
			return nil, err
		}
		if a != nil { // edited in place; nil stands for that
			a[consumer].Resources[root]["VCPU"] = 2
		}
		return nil, nil
	}}
	c := serve(t, d)

	reply, err := c.update(context.Background(), oneNode(t), nil)
	if err != nil || reply.GetAllocations() != nil {
		t.Fatalf("without allocations: %v, %v", reply.GetAllocations(), err)
	}
	tree := testproc.Try(protocol.ToTree(reply.GetTree())).Or(t)
	if inv, _ := tree.Inventory(tree.Roots()[0], "VCPU"); inv.Total != 4 {
		t.Errorf("inventory %+v", inv)
	}

	in := providertree.Allocations{consumer: {Resources: providertree.ProviderResources{tree.Roots()[0]: {"VCPU": 1}}}}
	reply = testproc.Try(c.update(context.Background(), oneNode(t), in)).Or(t)
	got, err := protocol.ToAllocations(reply.GetAllocations())
	if err != nil || got[consumer].Resources[tree.Roots()[0]]["VCPU"] != 2 {
		t.Errorf("allocations %v, %v", got, err)
	}
}

func TestAllocationsOutOfNowhereAreAnErrorOfTheDriver(t *testing.T) {
	d := &testDriver{update: func(context.Context,
		*providertree.Tree, providertree.Allocations) (providertree.Allocations, error) {
		return providertree.Allocations{}, nil
	}}
	testproc.Try(serve(t, d).update(context.Background(), oneNode(t), nil)).ErrorHas(t, "ErrReshapeNeeded", "got %v")
}

func TestErrorsBecomeStatuses(t *testing.T) {
	for _, c := range []struct {
		err  error
		code codes.Code
		kind protocol.Kind
	}{
		{fmt.Errorf("x: %w", ErrReshapeNeeded), codes.FailedPrecondition, protocol.KindReshapeNeeded},
		{&ReshapeNeeded{Reason: "r"}, codes.FailedPrecondition, protocol.KindReshapeNeeded},
		{fmt.Errorf("x: %w", &ReshapeFailed{Reason: "r"}), codes.Aborted, protocol.KindReshapeFailed},
		{ErrNotReady, codes.FailedPrecondition, protocol.KindNotReady},
		{&NotReady{Reason: "r"}, codes.FailedPrecondition, protocol.KindNotReady},
		{&ConfigError{Key: "k"}, codes.InvalidArgument, protocol.KindConfigError},
		{context.DeadlineExceeded, codes.Unknown, protocol.KindOther}, // of something else than this call
		{fmt.Errorf("x: %w", context.Canceled), codes.Unknown, protocol.KindOther},
		{fmt.Errorf("x: %w", &sdkError{status.New(codes.NotFound, "y")}), codes.NotFound, protocol.KindOther},
		{fmt.Errorf("x: %w", ErrUnsupported), codes.Unimplemented, protocol.KindUnsupported},
		{errors.New("anything"), codes.Unknown, protocol.KindOther},
		// What another service told the driver is not about the plugin.
		{status.Error(codes.Unimplemented, "y"), codes.Unknown, protocol.KindOther},
		{fmt.Errorf("x: %w", status.Error(codes.Unavailable, "y")), codes.Unknown, protocol.KindOther},
	} {
		got := toStatus(context.Background(), c.err)
		if status.Code(got) != c.code || protocol.FailureOf(got).Kind != c.kind {
			t.Errorf("%v became %v", c.err, got)
		}
	}
	if toStatus(context.Background(), nil) != nil {
		t.Error("nil")
	}
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	late, cancel := context.WithTimeout(context.Background(), 0)
	defer cancel()
	for ended, want := range map[context.Context]codes.Code{canceled: codes.Canceled, late: codes.DeadlineExceeded} {
		if got := toStatus(ended, fmt.Errorf("x: %w", ended.Err())); status.Code(got) != want ||
			!strings.Contains(got.Error(), "x: ") {
			t.Errorf("the call has ended: %v", got)
		}
	}
}

func TestPanicIsLoggedWithItsStack(t *testing.T) {
	d := &testDriver{nodes: func(context.Context) ([]Node, error) { panic("oh no") }}
	c := serve(t, d)
	_, err := c.AvailableNodes(context.Background(), &driverv1.AvailableNodesRequest{})
	if status.Code(err) != codes.Internal || !strings.Contains(err.Error(), "oh no") {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(c.log.String(), "main_test.go") ||
		!strings.Contains(c.log.String(), `"call":"AvailableNodes"`) {
		t.Errorf("log: %s", c.log)
	}
}

func TestCallsTakeTurns(t *testing.T) {
	inside := make(chan struct{})
	leave := make(chan struct{})
	d := &testDriver{nodes: func(context.Context) ([]Node, error) {
		inside <- struct{}{}
		<-leave // whatever its context says
		return nil, nil
	}}
	c := serve(t, d)
	first := make(chan error, 1)
	go func() {
		_, err := c.AvailableNodes(context.Background(), &driverv1.AvailableNodesRequest{})
		first <- err
	}()
	<-inside
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, err := c.Configure(ctx, &driverv1.ConfigureRequest{})
	if status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("a second call while the first runs: %v", err)
	}
	if _, err := c.Health(context.Background(), &driverv1.HealthRequest{}); err != nil {
		t.Errorf("health does not wait for a turn: %v", err)
	}
	close(leave)
	testproc.NoError(t, <-first)
}

func TestShutdownDrains(t *testing.T) {
	inside := make(chan struct{})
	leave := make(chan struct{})
	var order []string
	d := &testDriver{
		nodes: func(context.Context) ([]Node, error) {
			close(inside)
			<-leave
			order = append(order, "call")
			return nil, nil
		},
		shutdown: func() { order = append(order, "shutdown") },
	}
	c := serve(t, d)
	call := make(chan error, 1)
	go func() {
		_, err := c.AvailableNodes(context.Background(), &driverv1.AvailableNodesRequest{})
		call <- err
	}()
	<-inside
	if _, err := c.Shutdown(context.Background(),
		&driverv1.ShutdownRequest{GraceMs: 10}); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("the call under way takes longer than the grace: %v", err)
	}
	if _, err := c.Health(context.Background(), &driverv1.HealthRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("new calls are refused: %v", err)
	}
	close(leave)
	if _, err := c.Shutdown(context.Background(), &driverv1.ShutdownRequest{}); err != nil {
		t.Error(err)
	}
	testproc.NoError(t, <-call)
	testproc.Same(t, cmp.Diff([]string{"call", "shutdown"}, order))
}

func TestHealthTellsTheProblem(t *testing.T) {
	d := &watchingDriver{problem: errors.New("no libvirt")}
	c := serve(t, d)
	for _, want := range []string{"no libvirt", "the driver reports a problem without saying which", ""} {
		reply, err := c.Health(context.Background(), &driverv1.HealthRequest{})
		if err != nil || reply.GetProblem() != want {
			t.Errorf("got %v, %v, want %q", reply, err, want)
		}
		if d.problem != nil && d.problem.Error() == "" {
			d.problem = nil
			continue
		}
		d.problem = errors.New("")
	}
}

func TestWatchStreams(t *testing.T) {
	d := &watchingDriver{events: make(chan string, 2)}
	stream, err := serve(t, d).Watch(context.Background(), &driverv1.WatchRequest{HeartbeatMs: 5})
	testproc.Check(t, err)
	d.events <- "cn1"
	d.events <- ""
	var got []string
	for beats := 0; len(got) < 2 || beats < 3; {
		event := testproc.Try(stream.Recv()).Or(t)
		if event.GetHeartbeat() != nil {
			beats++
		} else {
			got = append(got, event.GetChanged().GetNode())
		}
	}
	testproc.Same(t, cmp.Diff([]string{"cn1", ""}, got))
	close(d.events)
	for err == nil {
		_, err = stream.Recv()
	}
	if !strings.Contains(err.Error(), "stopped watching") {
		t.Errorf("got %v", err)
	}
}

func TestWatchWithoutTheAbility(t *testing.T) {
	stream, err := serve(t, &testDriver{}).Watch(context.Background(), &driverv1.WatchRequest{})
	if err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("got %v", err)
	}
}

func TestBadTreeOfTheAgentIsRefused(t *testing.T) {
	if _, err := serve(t, &testDriver{}).UpdateProviderTree(context.Background(),
		&driverv1.UpdateProviderTreeRequest{}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("got %v", err)
	}
}

// TestPanicsDoNotBuryTheLog: a driver that panics at every call logs each place once with its
// stack, and then how often it was.
func TestPanicsDoNotBuryTheLog(t *testing.T) {
	other := false
	d := &testDriver{nodes: func(context.Context) ([]Node, error) {
		if other {
			panic("elsewhere")
		}
		panic(fmt.Sprintf("oh no, at %v", time.Now())) // the same place, in other words
	}}
	d.update = func(context.Context, *providertree.Tree, providertree.Allocations) (providertree.Allocations, error) {
		panic("oh no")
	}
	c := serve(t, d)
	ctx := context.Background()
	for range 1000 {
		if _, err := c.AvailableNodes(ctx, &driverv1.AvailableNodesRequest{}); status.Code(err) != codes.Internal {
			t.Fatal(err)
		}
	}
	stacks, lines := strings.Count(c.log.String(), `"stack":`), strings.Count(c.log.String(), "\n")
	if stacks != 1 || lines != 10 || !strings.Contains(c.log.String(), `"times":512`) {
		t.Errorf("%d stacks in %d lines:\n%s", stacks, lines, c.log)
	}
	_, _ = c.UpdateProviderTree(ctx,
		&driverv1.UpdateProviderTreeRequest{Tree: protocol.FromTree(oneNode(t)), Node: "cn1"})
	other = true
	_, _ = c.AvailableNodes(ctx, &driverv1.AvailableNodesRequest{})
	if stacks := strings.Count(c.log.String(), `"stack":`); stacks != 3 {
		t.Errorf("%d stacks of three places:\n%s", stacks, c.log)
	}
}

// TestPanicsEverywhereAreBounded: panics at more places than are counted separately are counted
// together.
func TestPanicsEverywhereAreBounded(t *testing.T) {
	var log strings.Builder
	var p panics
	for i := range 10 * maxPanics {
		func() {
			defer func() { p.record(zerolog.New(&log), fmt.Sprint(i), recover()) }()
			panic("oh no")
		}()
	}
	if stacks := strings.Count(log.String(), `"stack":`); stacks != maxPanics+1 || len(p.count) != maxPanics+1 {
		t.Errorf("%d stacks, %d places", stacks, len(p.count))
	}
}
