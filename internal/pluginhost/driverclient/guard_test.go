// SPDX-License-Identifier: Apache-2.0

package driverclient

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/plugins"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const otherUUID = "22222222-2222-3333-4444-555555555555"

// patience bounds every wait of a test.
const patience = testproc.Patience

const rootUUID = "11111111-2222-3333-4444-555555555555"

func oneNode(t testing.TB) *providertree.Tree {
	t.Helper()
	tree := &providertree.Tree{}
	testproc.Check(t, tree.AddRoot(rootUUID, "cn1"))
	testproc.Check(t, tree.SetGeneration(rootUUID, 7))
	return tree
}

// nodeAndPool is a node with a child, and a sharing provider with one beside it.
func nodeAndPool(t testing.TB) *providertree.Tree {
	t.Helper()
	tree := oneNode(t)
	for _, err := range []error{
		tree.AddChild(rootUUID, childUUID(1), "cn1_1"),
		tree.AddRoot(poolUUID, "pool"), tree.AddChild(poolUUID, childUUID(9), "pool_part"),
		tree.SetGeneration(childUUID(1), 3), tree.SetGeneration(poolUUID, 4), tree.SetGeneration(childUUID(9), 5),
	} {
		testproc.Check(t, err)
	}
	return tree
}

const poolUUID = "33333333-2222-3333-4444-555555555555"

func childUUID(i int) string {
	return fmt.Sprintf("c0000000-0000-4000-8000-%012d", i)
}

// wireProvider is one of a message. [wireRoot], [wireChild] and [wirePool] are what a well-behaved
// driver gives back of [nodeAndPool].
func wireProvider(uuid, name, parent string, generation int64) *driverv1.ResourceProvider {
	p := &driverv1.ResourceProvider{Uuid: uuid, Name: name, ParentUuid: parent}
	if generation != providertree.NoGeneration {
		p.Generation = &generation
	}
	return p
}

func wireRoot() *driverv1.ResourceProvider  { return wireProvider(rootUUID, "cn1", "", 7) }
func wireChild() *driverv1.ResourceProvider { return wireProvider(childUUID(1), "cn1_1", rootUUID, 3) }
func wirePool() []*driverv1.ResourceProvider {
	return []*driverv1.ResourceProvider{wireProvider(poolUUID, "pool", "", 4),
		wireProvider(childUUID(9), "pool_part", poolUUID, 5)}
}

// judge compares an error with the words that it should have.
func judge(t *testing.T, err error, want string, is error) {
	t.Helper()
	got := ""
	if err != nil {
		got = err.Error()
	}
	testproc.Same(t, cmp.Diff(want, got))
	if is != nil && !errors.Is(err, is) {
		t.Errorf("%v is not %v", err, is)
	}
}

func TestAllocationsAreRefusedInWords(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const consumer = "aaaaaaaa-0000-0000-0000-000000000000"
	has := func(provider, class string, n int64) *driverv1.Allocations {
		return &driverv1.Allocations{Consumers: map[string]*driverv1.ConsumerAllocations{
			consumer: {Resources: map[string]*driverv1.Resources{provider: {Amounts: map[string]int64{class: n}}}}}}
	}
	given := providertree.Allocations{}
	for name, c := range map[string]struct {
		given   providertree.Allocations
		came    *driverv1.Allocations
		renames map[string]string
		want    string
		is      error
	}{
		"none":      {},
		"back":      {given: given, came: &driverv1.Allocations{}},
		"something": {given: given, came: has(rootUUID, "VCPU", 1)},
		"renames":   {given: given, came: &driverv1.Allocations{}, renames: map[string]string{"CUSTOM_A": "A"}},
		"out of nowhere": {came: &driverv1.Allocations{},
			want: "it has allocations, and the request had none: a driver that must move inventory in use returns " +
				"ReshapeNeeded"},
		"lost": {given: given,
			want: "it lacks the allocations of the request: return them, also those that did not move"},
		"renames, no moves": {renames: map[string]string{"CUSTOM_A": "A"},
			want: "it renames resource classes, and the request had no allocations: renames belong to a reshape"},
		"renames in a chain": {given: given, came: &driverv1.Allocations{},
			renames: map[string]string{"A": "B", "B": "C", "D": "D", "e": "F"},
			want: `3 defects: (1) resource class A is renamed to B, which is renamed too: declare the final name; ` +
				`(2) resource class D is renamed to itself; ` +
				`(3) resource class name "e": only A-Z, 0-9 and _ are allowed`},
		"of nothing": {given: given, came: has(rootUUID, "VCPU", 0), is: providertree.ErrInvalid,
			want: "allocations of consumer " + consumer +
				": 0 of VCPU on " + rootUUID +
				", must be between 1 and 2147483647; leave out classes without an amount"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := checkReply(nodeAndPool(t), "cn1", c.given, &driverv1.UpdateProviderTreeResponse{
				Tree: protocol.FromTree(nodeAndPool(t)), Allocations: c.came, ClassRenames: c.renames})
			judge(t, err, c.want, c.is)
		})
	}
	_, _, err := checkReply(nodeAndPool(t), "cn1", nil, &driverv1.UpdateProviderTreeResponse{})
	judge(t, err, "malformed message: it has no provider tree", protocol.ErrMalformed)
}

// TestInvalidTreesAreRefused: what a valid tree is, package providertree tests.
func TestInvalidTreesAreRefused(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	lower := wireRoot()
	lower.Traits = []string{"lower"}
	for _, c := range []struct {
		root *driverv1.ResourceProvider
		want string
		is   error
	}{
		{lower, `resource provider "cn1" (` + rootUUID + `): trait name "lower": only A-Z, 0-9 and _ are allowed`,
			providertree.ErrInvalid},
		{wireProvider(rootUUID, "cn1", "", 8), `resource provider "cn1" (` + rootUUID +
			"): its generation is 8, was 7: only Placement changes generations", nil},
		{wireProvider(rootUUID, "cn1", "", -2), `resource provider "cn1" (` + rootUUID +
			"): its generation is -2: return it unchanged, and leave it out of a new provider",
			providertree.ErrInvalid},
	} {
		tree, _, err := checkReply(oneNode(t), "cn1", nil, reply(c.root))
		judge(t, err, c.want, c.is)
		if tree != nil {
			t.Error("a tree that was refused is returned")
		}
	}
}

func reply(providers ...*driverv1.ResourceProvider) *driverv1.UpdateProviderTreeResponse {
	return &driverv1.UpdateProviderTreeResponse{Tree: &driverv1.ProviderTree{Providers: providers}}
}

func TestNodesAreRefusedInWords(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const uuid = "AAAAAAAA-2222-3333-4444-555555555555"
	for _, c := range []struct {
		name  string
		nodes []plugins.Node
		want  string
	}{
		{"none", nil, ""},
		{"one", []plugins.Node{{Name: "a"}}, ""},
		{"uuid is made canonical", []plugins.Node{{Name: "a", UUID: uuid}}, ""},
		{"no name", []plugins.Node{{}}, `node 0 (""): its name has 0 characters, must have 1 to 200`},
		{"unprintable name", []plugins.Node{{Name: "a\u202eb"}},
			`node 0 ("a\u202eb"): its name has unprintable characters`},
		{"name twice", []plugins.Node{{Name: "a"}, {Name: "a"}},
			`node 1 ("a"): its name is also that of another node; list each node once`},
		{"uuid twice", []plugins.Node{{Name: "a", UUID: uuid}, {Name: "b", UUID: strings.ToLower(uuid)}},
			`node 1 ("b"): its uuid ` + strings.ToLower(uuid) + ` is also that of "a"`},
		{"bad uuids", []plugins.Node{{Name: "a", UUID: "x"}, {Name: "b", UUID: "y"}},
			`2 defects: (1) node 0 ("a"): its uuid "x" is invalid: leave it empty for the agent's own identity; (2) ` +
				`node 1 ("b"): its uuid "y" is invalid: leave it empty for the agent's own identity`},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := checkNodes(c.nodes)
			judge(t, err, c.want, nil)
			if err == nil && len(c.nodes) > 0 && c.nodes[0].UUID != strings.ToLower(c.nodes[0].UUID) {
				t.Errorf("uuid %s", c.nodes[0].UUID)
			}
		})
	}
}

func TestInfoIsRefusedInWords(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, c := range []struct {
		info *driverv1.InfoResponse
		want string
	}{
		{&driverv1.InfoResponse{Name: "a", Capabilities: []string{"watch", "of_tomorrow-2"}, Version: "\x1b[2J"}, ""},
		{&driverv1.InfoResponse{}, `the driver's name is "": must be 1 to 63 lower case letters, digits and hyphens`},
		{&driverv1.InfoResponse{Name: "a", Capabilities: []string{"\x1b[2J", ""}},
			`2 defects: (1) capability "\x1b[2J": must be 1 to 64 lower case letters, digits, underscores and ` +
				`hyphens; (2) capability "": must be 1 to 64 lower case letters, digits, underscores and hyphens`},
	} {
		judge(t, checkInfo(c.info), c.want, nil)
	}
}
