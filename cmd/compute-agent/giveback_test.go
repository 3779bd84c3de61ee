// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/resourcetracker/journal"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// rootTree is what Placement has of the node: the names of all providers, and of the root all but
// the generations.
func (s *site) rootTree() map[string]any {
	s.t.Helper()
	out := map[string]any{"names": s.names()}
	for _, part := range []string{"inventories", "traits", "aggregates"} {
		var content map[string]any
		s.request(http.MethodGet, "/resource_providers/"+cn1+"/"+part, "", &content)
		out[part] = content[part]
	}
	return out
}

// TestGiveBackAfterReshape: what a reshape has moved must be moved back before. A reshape of
// another node, of which the outcome is not known, is in nothing's way.
func TestGiveBackAfterReshape(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newSite(t)
	s.settle()
	s.says(cli.ExitUsage, []string{"adopt", "--give-back", "--as-new"}, "--give-back cannot be combined")
	s.says(cli.ExitUsage, []string{"adopt", "--give-back", "--rename"}, "--give-back cannot be combined")
	s.says(cli.ExitProtect, []string{"adopt", "--give-back", "--yes"}, "was created by this agent",
		"nothing to give back")
	s.wipe() // for an agent that comes again the node is another's
	before := s.rootTree()
	s.configure("flat", "")
	s.agent()()
	if diff := cmp.Diff(before, s.rootTree()); diff != "" {
		t.Fatalf("the adoption changed the tree: %s", diff)
	}
	s.configure("vgpu-children", "")
	s.agent()()
	if s.used() != 0 {
		t.Fatal("the reshape did not take place")
	}
	s.says(cli.ExitProtect, []string{"adopt", "--give-back", "--node", "cn7", "--yes"}, `no record of a node "cn7"`,
		"cn1")
	s.says(cli.ExitProtect, []string{"adopt", "--give-back", "--yes"}, "is allocated",
		"99999999-0000-4000-8000-000000000001", "compute-agent reshape undo 1")
	s.says(cli.ExitDone, []string{"reshape", "undo", "1"})
	reshapes := journal.New(s.state(""))
	testproc.Try(reshapes.Load()).Or(t)
	check(t, reshapes.Begin("99999999-0000-4000-8000-0000000000c7", &reportclient.Reshape{}))
	s.says(cli.ExitDone, []string{"adopt", "--give-back", "--dry-run"}, "Steps:", "delete resource provider",
		"forget what this agent owned")
	s.says(cli.ExitDone, []string{"adopt", "--give-back", "--yes"}, "Done:")
	testproc.Samef(t, cmp.Diff(before, s.rootTree()), "the tree is not what it was")
	testproc.Equal(t, s.used(), 6, "%d VGPU in use on the root")
	if left, err := filepath.Glob(s.state("nodes/*")); err != nil || len(left) > 0 {
		t.Errorf("left in the state directory: %v, %v", left, err)
	}
	s.says(cli.ExitDone, []string{"adopt", "--give-back", "--yes"}, "Nothing to do for node")
}

// TestGiveBackWithoutSnapshot: an earlier version of the agent adopted the node.
func TestGiveBackWithoutSnapshot(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := newSite(t)
	s.settle()
	s.wipe()
	s.configure("flat", "")
	s.agent()()
	check(t, os.Remove(s.state("nodes/"+cn1+".adopted.json")))
	before := s.rootTree()
	s.says(cli.ExitDone, []string{"adopt", "--give-back", "--yes"}, "without a snapshot", "COMPUTE_NODE",
		"the inventories of VCPU, VGPU of resource provider cn1")
	after := s.rootTree()
	if diff := cmp.Diff(before["inventories"], after["inventories"]); diff != "" {
		t.Errorf("inventories that Nova may have made changed: %s", diff)
	}
}
