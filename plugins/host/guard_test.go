// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/plugins/internal/wire"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/providertree"
)

func TestCheckReply(t *testing.T) {
	gen := func(n int64) *int64 { return &n }
	root := func() *driverv1.ResourceProvider {
		return &driverv1.ResourceProvider{Uuid: rootUUID, Name: "cn1", Generation: gen(7)}
	}
	child := func(i int) *driverv1.ResourceProvider {
		id, _ := providertree.ChildUUID(rootUUID, fmt.Sprint(i))
		return &driverv1.ResourceProvider{Uuid: id, Name: fmt.Sprint("child", i), ParentUuid: rootUUID}
	}
	many := make([]string, maxSymbolsOfProvider+1)
	for i := range many {
		many[i] = fmt.Sprint("CUSTOM_", i)
	}
	given := providertree.Allocations{}
	for _, c := range []struct {
		name  string
		given providertree.Allocations
		reply *driverv1.UpdateProviderTreeResponse
		want  string // in the error; "" is good
		is    error
	}{
		{name: "unchanged", reply: reply(root())},
		{name: "with a child", reply: reply(root(), child(1))},
		{name: "nothing", reply: &driverv1.UpdateProviderTreeResponse{}, want: "no provider tree", is: wire.ErrMalformed},
		{name: "empty tree", reply: reply(), want: "is missing"},
		{name: "renamed", reply: reply(&driverv1.ResourceProvider{Uuid: rootUUID, Name: "other", Generation: gen(7)}), want: "was renamed"},
		{name: "no longer a root", reply: reply(child(1), &driverv1.ResourceProvider{Uuid: rootUUID, Name: "cn1", ParentUuid: child(1).Uuid}), is: providertree.ErrParent},
		{name: "below another root", reply: reply(
			&driverv1.ResourceProvider{Uuid: child(1).Uuid, Name: "new-root"},
			&driverv1.ResourceProvider{Uuid: rootUUID, Name: "cn1", ParentUuid: child(1).Uuid, Generation: gen(7)}), want: "was put below"},
		{name: "other generation", reply: reply(&driverv1.ResourceProvider{Uuid: rootUUID, Name: "cn1", Generation: gen(8)}), want: "is 8, was 7"},
		{name: "lost generation", reply: reply(&driverv1.ResourceProvider{Uuid: rootUUID, Name: "cn1"}), want: "was 7"},
		{name: "made up generation", reply: reply(root(), &driverv1.ResourceProvider{Uuid: child(1).Uuid, Name: "c", ParentUuid: rootUUID, Generation: gen(1)}), want: "is 1, was -1"},
		{name: "name twice", reply: reply(root(), child(1), &driverv1.ResourceProvider{Uuid: child(2).Uuid, Name: "child1", ParentUuid: rootUUID}), is: providertree.ErrInvalid},
		{name: "bad trait", reply: reply(&driverv1.ResourceProvider{Uuid: rootUUID, Name: "cn1", Generation: gen(7), Traits: []string{"lower"}}), is: providertree.ErrInvalid},
		{name: "too many traits", reply: reply(&driverv1.ResourceProvider{Uuid: rootUUID, Name: "cn1", Generation: gen(7), Traits: many}), want: "at most 10000"},
		{name: "too many providers", reply: &driverv1.UpdateProviderTreeResponse{Tree: &driverv1.ProviderTree{Providers: make([]*driverv1.ResourceProvider, maxProviders+1)}}, want: "at most 50000"},
		{name: "allocations out of nowhere", reply: &driverv1.UpdateProviderTreeResponse{Tree: reply(root()).Tree, Allocations: &driverv1.Allocations{}}, want: "none were given"},
		{name: "allocations lost", given: given, reply: reply(root()), want: "are missing"},
		{name: "allocations back", given: given, reply: &driverv1.UpdateProviderTreeResponse{Tree: reply(root()).Tree, Allocations: &driverv1.Allocations{}}},
		{name: "renames", given: given, reply: &driverv1.UpdateProviderTreeResponse{Tree: reply(root()).Tree, Allocations: &driverv1.Allocations{},
			ClassRenames: map[string]string{"CUSTOM_A": "A"}}},
		{name: "renames without a reshape", reply: &driverv1.UpdateProviderTreeResponse{Tree: reply(root()).Tree,
			ClassRenames: map[string]string{"CUSTOM_A": "A"}}, want: "no allocations were given"},
		{name: "renames in a chain", given: given, reply: &driverv1.UpdateProviderTreeResponse{Tree: reply(root()).Tree, Allocations: &driverv1.Allocations{},
			ClassRenames: map[string]string{"A": "B", "B": "C"}}, want: "which is renamed too"},
	} {
		t.Run(c.name, func(t *testing.T) {
			tree, _, err := checkReply(oneNode(t), "cn1", c.given, c.reply)
			if c.want == "" && c.is == nil {
				if err != nil || !tree.Exists(rootUUID) {
					t.Errorf("refused: %v", err)
				}
				return
			}
			if err == nil || tree != nil || !strings.Contains(err.Error(), c.want) || (c.is != nil && !errors.Is(err, c.is)) {
				t.Errorf("want %q (%v), got %v", c.want, c.is, err)
			}
		})
	}
}

func reply(providers ...*driverv1.ResourceProvider) *driverv1.UpdateProviderTreeResponse {
	return &driverv1.UpdateProviderTreeResponse{Tree: &driverv1.ProviderTree{Providers: providers}}
}

func TestCheckNodes(t *testing.T) {
	const uuid = "AAAAAAAA-2222-3333-4444-555555555555"
	for _, c := range []struct {
		name  string
		nodes []plugins.Node
		want  string
	}{
		{"none", nil, ""},
		{"one", []plugins.Node{{Name: "a"}}, ""},
		{"uuid is made canonical", []plugins.Node{{Name: "a", UUID: uuid}}, ""},
		{"no name", []plugins.Node{{}}, "node 0"},
		{"name twice", []plugins.Node{{Name: "a"}, {Name: "a"}}, "listed twice"},
		{"uuid twice", []plugins.Node{{Name: "a", UUID: uuid}, {Name: "b", UUID: strings.ToLower(uuid)}}, "that of another node"},
		{"bad uuid", []plugins.Node{{Name: "a", UUID: "x"}}, "not a uuid"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := checkNodes(c.nodes)
			if (c.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("want %q, got %v", c.want, err)
			}
			if err == nil && len(c.nodes) > 0 && c.nodes[0].UUID != strings.ToLower(c.nodes[0].UUID) {
				t.Errorf("uuid %s", c.nodes[0].UUID)
			}
		})
	}
}
