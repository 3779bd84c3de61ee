// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// ableDriver has the optional abilities that are about nodes.
type ableDriver struct {
	testDriver
	version int
	step    func(tree *providertree.Tree, from int, a providertree.Allocations) (providertree.Allocations, error)
	guests  func() ([]Guest, error)
	deleted func(Node) (bool, error)
}

func (d *ableDriver) LayoutVersion() int { return d.version }

func (d *ableDriver) Reshape(
	_ context.Context, tree *providertree.Tree, _ string, from int, a providertree.Allocations,
) (providertree.Allocations, error) {
	return d.step(tree, from, a)
}

func (d *ableDriver) Capabilities(node string) map[string]bool {
	return map[string]bool{"CUSTOM_" + strings.ToUpper(node): true, "CUSTOM_NOT": false}
}

func (d *ableDriver) Guests(context.Context, *providertree.Tree, string) ([]Guest, error) {
	return d.guests()
}

func (d *ableDriver) NodeDeleted(_ context.Context, n Node) (bool, error) { return d.deleted(n) }

func TestLayoutVersionComesWithTheConfiguration(t *testing.T) {
	for version, good := range map[int]bool{-1: false, 0: true, 1: true, MaxLayout: true, MaxLayout + 1: false} {
		reply, err := serve(t, &ableDriver{version: version}).
			Configure(context.Background(), &driverv1.ConfigureRequest{})
		if (err == nil) != good || good && int(reply.GetShapeVersion()) != version {
			t.Errorf("version %d: %v, %v", version, reply, err)
		}
	}
	if reply, err := serve(t, &testDriver{}).Configure(context.Background(),
		&driverv1.ConfigureRequest{}); err != nil || reply.GetShapeVersion() != 0 {
		t.Errorf("without the ability: %v, %v", reply, err)
	}
}

func TestStepEditsTreeAndAllocations(t *testing.T) {
	consumer := "99999999-2222-3333-4444-555555555555"
	d := &ableDriver{version: 3}
	var got []int
	d.step = func(tree *providertree.Tree, from int, a providertree.Allocations) (providertree.Allocations, error) {
		got = append(got, from)
		if a == nil {
			t.Error("a step is always given allocations")
		}
		root := tree.Roots()[0]
		if len(a) > 0 {
			a[consumer].Resources[root]["VCPU"] = 2
		}
		_, err := tree.AddTraits(root, "CUSTOM_NEW")
		return nil, err // edited in place; nil stands for that
	}
	c := serve(t, d)
	in := providertree.Allocations{consumer: {Resources: providertree.ProviderResources{oneNode(t).
		Roots()[0]: {"VCPU": 1}}}}
	for _, given := range []providertree.Allocations{in, nil} {
		reply := testproc.Try(c.ReshapeStep(context.Background(), &driverv1.ReshapeStepRequest{
			Tree: protocol.FromTree(oneNode(t)), Node: "cn1", FromShape: 2,
			Allocations: protocol.FromAllocations(given)})).Or(t)
		tree, err := protocol.ToTree(reply.GetTree())
		if err != nil || !tree.HasTraits(tree.Roots()[0], "CUSTOM_NEW") {
			t.Errorf("tree: %v", err)
		}
		after, err := protocol.ToAllocations(reply.GetAllocations())
		if err != nil || after == nil || given != nil && after[consumer].Resources[tree.Roots()[0]]["VCPU"] != 2 {
			t.Errorf("allocations: %v, %v", after, err)
		}
	}
	testproc.Same(t, cmp.Diff([]int{2, 2}, got))
}

func TestStepsThatAreRefused(t *testing.T) {
	d := &ableDriver{version: 3,
		step: func(*providertree.Tree, int, providertree.Allocations) (providertree.Allocations, error) {
			return nil, fmt.Errorf("x: %w", ErrReshapeNeeded)
		}}
	c := serve(t, d)
	step := func(from int32) error {
		_, err := c.ReshapeStep(context.Background(),
			&driverv1.ReshapeStepRequest{Tree: protocol.FromTree(oneNode(t)), Node: "cn1", FromShape: from})
		return err
	}
	for _, from := range []int32{-1, 3, 4} {
		if err := step(from); status.Code(err) != codes.InvalidArgument {
			t.Errorf("from %d: %v", from, err)
		}
	}
	if err := step(0); protocol.FailureOf(err).Kind != protocol.KindOther ||
		!strings.Contains(err.Error(), "it must migrate") {
		t.Errorf("a step that asks for a reshape: %v", err)
	}
	d.step = func(*providertree.Tree, int, providertree.Allocations) (providertree.Allocations, error) {
		panic("oh no")
	}
	if err := step(0); status.Code(err) != codes.Internal {
		t.Errorf("a panic: %v", err)
	}
}

func TestCapabilitiesComeWithTheTree(t *testing.T) {
	d := &ableDriver{}
	d.update = func(context.Context, *providertree.Tree, providertree.Allocations) (providertree.Allocations, error) {
		return nil, nil
	}
	reply := testproc.Try(serve(t, d).update(context.Background(), oneNode(t), nil)).Or(t)
	testproc.Same(t, cmp.Diff(map[string]bool{"CUSTOM_CN1": true, "CUSTOM_NOT": false}, reply.GetCapabilityTraits()))
}

func TestGuestsAreSent(t *testing.T) {
	d := &ableDriver{guests: func() ([]Guest, error) {
		return []Guest{
			{UUID: "u", Name: "bad \xff name", ProjectID: "p", UserID: "o",
				Resources: providertree.ProviderResources{"x": {"VCPU": 1}}},
			{UUID: "unknown"}, {UUID: "nothing", Resources: providertree.ProviderResources{}},
		}, nil
	}}
	c := serve(t, d)
	ask := func() (*driverv1.GuestsResponse, error) {
		return c.Guests(context.Background(), &driverv1.GuestsRequest{Tree: protocol.FromTree(oneNode(t)), Node: "cn1"})
	}
	reply := testproc.Try(ask()).Or(t)
	want := &driverv1.GuestsResponse{Guests: []*driverv1.Guest{
		{Uuid: "u", Name: "bad \uFFFD name", ProjectId: "p", UserId: "o", Resources: &driverv1.GuestResources{
			Resources: map[string]*driverv1.Resources{"x": {Amounts: map[string]int64{"VCPU": 1}}}}},
		{Uuid: "unknown"}, {Uuid: "nothing", Resources: &driverv1.GuestResources{}},
	}}
	testproc.Same(t, cmp.Diff(want, reply, protocmp.Transform()))
	d.guests = func() ([]Guest, error) { return nil, &NotReady{Reason: "asleep"} }
	if _, err := ask(); protocol.FailureOf(err).Kind != protocol.KindNotReady {
		t.Errorf("not ready: %v", err)
	}
	d.guests = func() ([]Guest, error) { return []Guest{{UUID: "u"}}, ErrUnsupported }
	if reply, err := ask(); protocol.FailureOf(err).Kind != protocol.KindUnsupported || reply != nil {
		t.Errorf("a part of the list with an error: %v, %v", reply, err)
	}
}

func TestNodeDeletedIsAsked(t *testing.T) {
	d := &ableDriver{deleted: func(n Node) (bool, error) {
		if n.UUID == "" {
			return true, errors.New("without a uuid")
		}
		return n.Name == "gone", nil
	}}
	c := serve(t, d)
	for node, want := range map[string]bool{"gone": true, "cn1": false} {
		reply, err := c.NodeDeleted(context.Background(),
			&driverv1.NodeDeletedRequest{Node: &driverv1.Node{Name: node, Uuid: "u"}})
		if err != nil || reply.GetDeleted() != want {
			t.Errorf("%s: %v, %v", node, reply, err)
		}
	}
	if reply, err := c.NodeDeleted(context.Background(), &driverv1.NodeDeletedRequest{}); err == nil || reply != nil {
		t.Errorf("an error is no answer: %v, %v", reply, err)
	}
}

// TestAbilitiesThatAreLacking: a call fails as unsupported, instead of returning an empty result.
func TestAbilitiesThatAreLacking(t *testing.T) {
	c, ctx, tree := serve(t, &testDriver{}), context.Background(), protocol.FromTree(oneNode(t))
	_, step := c.ReshapeStep(ctx, &driverv1.ReshapeStepRequest{Tree: tree})
	_, guests := c.Guests(ctx, &driverv1.GuestsRequest{Tree: tree})
	_, deleted := c.NodeDeleted(ctx, &driverv1.NodeDeletedRequest{})
	for call, err := range map[string]error{"step": step, "guests": guests, "deleted": deleted} {
		if status.Code(err) != codes.Unimplemented || protocol.FailureOf(err).Kind != protocol.KindUnsupported {
			t.Errorf("%s: %v", call, err)
		}
	}
}

// TestAbilitiesTakeTurns: the calls that are about nodes never run beside one another.
func TestAbilitiesTakeTurns(t *testing.T) {
	inside, leave := make(chan struct{}, 8), make(chan struct{}) // a call that was given up may still get in
	d := &ableDriver{version: 2, guests: func() ([]Guest, error) {
		inside <- struct{}{}
		<-leave
		return nil, nil
	}}
	c, tree := serve(t, d), protocol.FromTree(oneNode(t))
	first := make(chan error, 1)
	go func() {
		_, err := c.Guests(context.Background(), &driverv1.GuestsRequest{Tree: tree})
		first <- err
	}()
	<-inside
	for call, ask := range map[string]func(context.Context) error{
		"step": func(ctx context.Context) error {
			_, err := c.ReshapeStep(ctx, &driverv1.ReshapeStepRequest{Tree: tree})
			return err
		},
		"guests": func(ctx context.Context) error {
			_, err := c.Guests(ctx, &driverv1.GuestsRequest{Tree: tree})
			return err
		},
		"deleted": func(ctx context.Context) error {
			_, err := c.NodeDeleted(ctx, &driverv1.NodeDeletedRequest{})
			return err
		},
		"update": func(ctx context.Context) error {
			_, err := c.UpdateProviderTree(ctx, &driverv1.UpdateProviderTreeRequest{Tree: tree})
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		if err := ask(ctx); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("%s while the first runs: %v", call, err)
		}
		cancel()
	}
	close(leave)
	testproc.NoError(t, <-first)
}

func TestBadTreesOfTheAgentAreRefusedEverywhere(t *testing.T) {
	c := serve(t, &ableDriver{version: 1})
	if _, err := c.ReshapeStep(context.Background(),
		&driverv1.ReshapeStepRequest{}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("step: %v", err)
	}
	if _, err := c.Guests(context.Background(), &driverv1.GuestsRequest{}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("guests: %v", err)
	}
}

// namingDriver knows what hardware is called.
type namingDriver struct {
	testDriver
	names map[string]string
}

func (d *namingDriver) ProductNames(string) map[string]string { return d.names }

func TestProductNamesComeWithTheTree(t *testing.T) {
	unchanged := func(context.Context, *providertree.Tree, providertree.Allocations) (providertree.Allocations, error) {
		return nil, nil
	}
	for name, c := range map[string]struct{ reported, sent map[string]string }{
		"none":                    {nil, nil},
		"a name":                  {map[string]string{"cn1": "Acme 9000"}, map[string]string{"cn1": "Acme 9000"}},
		"an empty name":           {map[string]string{"cn1": ""}, nil},
		"providers not in a tree": {map[string]string{"cn2": "Acme 9000", "bad \xff": "Acme"}, nil},
		"invalid UTF-8":           {map[string]string{"cn1": "Acme\xff"}, map[string]string{"cn1": "Acme\uFFFD"}},
		"200 characters": {map[string]string{"cn1": strings.Repeat("é", 200)},
			map[string]string{"cn1": strings.Repeat("é", 200)}},
		"201 characters": {map[string]string{"cn1": strings.Repeat("é", 201)},
			map[string]string{"cn1": strings.Repeat("é", 197) + "..."}},
	} {
		d := &namingDriver{names: c.reported}
		d.update = unchanged
		reply, err := serve(t, d).update(context.Background(), oneNode(t), nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		testproc.Samef(t, cmp.Diff(c.sent, reply.GetProductNames()), "%s", name)
	}
	if got := capabilities(&namingDriver{}); !slices.Contains(got, protocol.CapabilityProductNames) {
		t.Errorf("announced are %v", got)
	}
	if got := capabilities(&testDriver{}); slices.Contains(got, protocol.CapabilityProductNames) {
		t.Errorf("announced without the method are %v", got)
	}
}

// identifyingDriver knows its hypervisor.
type identifyingDriver struct {
	testDriver
	is Hypervisor
}

func (d *identifyingDriver) Hypervisor(string) Hypervisor { return d.is }

func TestHypervisorComesWithTheTree(t *testing.T) {
	unchanged := func(context.Context, *providertree.Tree, providertree.Allocations) (providertree.Allocations, error) {
		return nil, nil
	}
	for name, c := range map[string]struct {
		is   Hypervisor
		sent *driverv1.Hypervisor
	}{
		"none":               {},
		"QEMU":               {Hypervisor{"QEMU", 7002001}, &driverv1.Hypervisor{Type: "QEMU", Version: 7002001}},
		"without a version":  {Hypervisor{"QEMU", 0}, &driverv1.Hypervisor{Type: "QEMU"}},
		"a negative version": {Hypervisor{"QEMU", -1}, &driverv1.Hypervisor{Type: "QEMU"}},
		"an absurd version":  {Hypervisor{"", 1 << 31}, nil},
		"invalid UTF-8":      {Hypervisor{"Acme\xff", 1}, &driverv1.Hypervisor{Type: "Acme\uFFFD", Version: 1}},
		"101 characters": {Hypervisor{strings.Repeat("é", 101), 1},
			&driverv1.Hypervisor{Type: strings.Repeat("é", 97) + "...", Version: 1}},
	} {
		d := &identifyingDriver{is: c.is}
		d.update = unchanged
		reply := testproc.Try(serve(t, d).update(context.Background(), oneNode(t), nil)).Or(t)
		testproc.Samef(t, cmp.Diff(c.sent, reply.GetHypervisor(), protocmp.Transform()), "%s", name)
	}
	if got := capabilities(&identifyingDriver{}); !slices.Contains(got, protocol.CapabilityHypervisor) {
		t.Errorf("announced are %v", got)
	}
	if got := capabilities(&testDriver{}); slices.Contains(got, protocol.CapabilityHypervisor) {
		t.Errorf("announced without the method are %v", got)
	}
}
