// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"errors"
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
