// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestTreeShowsWhatPlacementHas: `tree` shows what Placement has, also what others wrote since the
// agent compared its cache, and `refresh` has the agent see it. Without Placement the heading says
// how old the tree is.
func TestTreeShowsWhatPlacementHas(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	address, state := testproc.FreeAddress(t), t.TempDir()
	server := servePlacement(t, state, address)
	s := newSite(t, "http://"+address)
	agent := s.run()
	agent.await(0, wrote, "Set the traits of cn1")
	root := s.status().Drivers[0].Report.Nodes[0].UUID
	url := "http://" + address + "/resource_providers/" + root

	put(t, "http://"+address+"/traits/CUSTOM_THEIRS", nil)
	var traits struct {
		Generation int64    `json:"resource_provider_generation"`
		Traits     []string `json:"traits"`
	}
	get(t, url+"/traits", &traits)
	traits.Traits = append(traits.Traits, "CUSTOM_THEIRS")
	put(t, url+"/traits", traits)
	get(t, url+"/traits", &traits)

	heading := fmt.Sprintf("cn1  %s  generation %d\n", root, traits.Generation)
	if out, code := command(t, "tree", "--traits", "--config", s.config); code != 0 ||
		!strings.HasPrefix(out, heading) || !strings.Contains(out, "CUSTOM_THEIRS") {
		t.Errorf("exit code %d, want %q and CUSTOM_THEIRS in\n%s", code, heading, out)
	}
	before := s.status().Placement
	if out, code := command(t, "refresh", "--config", s.config); code != 0 {
		t.Errorf("exit code %d: %s", code, out)
	}
	// Passes go on while the command starts: only those after its end are behind the refresh.
	s.awaitPasses(agent, s.status().Drivers[0].Report.Nodes[0].Passes+2)
	// The list, and three for the root, whose generation moved.
	if now := s.status().Placement; now.Requests-before.Requests != 4 || now.Writes != before.Writes {
		t.Errorf("%d requests, %d of them writes, after a refresh",
			now.Requests-before.Requests, now.Writes-before.Writes)
	}

	server.signal(syscall.SIGTERM)
	server.exit()
	out, code := command(t, "tree", "--config", s.config)
	if code != 1 || !strings.HasPrefix(out, "cn1: Placement cannot be read: ") ||
		!strings.Contains(out, "The tree below was read at 20") || !strings.Contains(out, heading) {
		t.Errorf("without Placement: exit code %d, want a heading and %q in\n%s", code, heading, out)
	}
	out, code = command(t, "tree", "-o", "json", "--config", s.config)
	var tree control.Tree
	if err := json.Unmarshal([]byte(out), &tree); err != nil || code != 1 || len(tree.Nodes) != 1 ||
		tree.Nodes[0].Stale == "" || tree.Nodes[0].ReadAt.IsZero() {
		t.Errorf("without Placement: exit code %d, %v, %s", code, err, out)
	}
}

// put writes a resource of a Placement, as curl would.
func put(t *testing.T, url string, body any) {
	t.Helper()
	testproc.Send(t, nil, http.MethodPut, url, "placement 1.37", body).Good(t)
}
