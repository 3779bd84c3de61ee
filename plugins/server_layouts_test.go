// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

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
