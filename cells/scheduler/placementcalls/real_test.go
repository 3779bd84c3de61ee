// SPDX-License-Identifier: Apache-2.0

package placementcalls_test

import (
	"errors"
	"net/http/httputil"
	"net/url"
	"testing"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/scheduler/placementcalls"
	"github.com/compute-agent/compute-agent/cells/scheduler/resourcerequest"
	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestRealPlacementOfOpenStack: what is true of our Placement is true of OpenStack's.
func TestRealPlacementOfOpenStack(t *testing.T) {
	real := testproc.StartPlacement(t)
	at := testproc.Try(url.Parse(real.URL)).Or(t)
	for name, test := range map[string]func(*testing.T, *rig, *placementcalls.Client){
		"life": testServerLifecycle,
		"full": testCapacityExhausted,
		"a tree of many": func(t *testing.T, s *rig, c *placementcalls.Client) {
			for n := range 5 {
				s.node(n, nodeResources())
			}
			r := smallRequest(t)
			r.InTree, r.Limit = providerUUID(3), 10
			found, err := c.Candidates(t.Context(), r)
			check(t, err)
			if len(found) != 1 || found[0].Root != providerUUID(3) {
				t.Errorf("%+v", found)
			}
			r.InTree, r.Limit = "", 2
			if found, err = c.Candidates(t.Context(), r); err != nil || len(found) != 2 {
				t.Errorf("at most two are %+v, %v", found, err)
			}
		},
		"aggregates": func(t *testing.T, s *rig, c *placementcalls.Client) {
			for n := 1; n <= 3; n++ {
				s.node(n, nodeResources())
				s.put("/resource_providers/"+providerUUID(n)+"/aggregates",
					map[string]any{"resource_provider_generation": 1, "aggregates": []string{providerUUID(50 + n)}})
			}
			for range 2 {
				r := smallRequest(t)
				r.OneOf, r.NoneOf = [][]string{{providerUUID(51), providerUUID(52)}},
					[]string{providerUUID(52), providerUUID(53)}
				if found, err := c.Candidates(t.Context(), r); err != nil || len(found) != 1 ||
					found[0].Root != providerUUID(1) {
					t.Errorf("%+v, %v", found, err)
				}
			}
		},
		"groups": func(t *testing.T, s *rig, c *placementcalls.Client) {
			s.put("/traits/CUSTOM_FAST", nil)
			s.node(1, nodeResources())
			s.node(2, nodeResources(), "CUSTOM_FAST")
			s.node(3, nodeResources(), "CUSTOM_FAST", providertree.TraitStatusDisabled)
			for _, specs := range []map[string]string{
				{"trait:CUSTOM_FAST": "required"},
				{"resources:DISK_GB": "0", "resources1:DISK_GB": "1",
					"trait1:CUSTOM_FAST": "required", "group_policy": "none"},
				{"resources:VCPU": "0", "resources:MEMORY_MB": "0", "resources:DISK_GB": "0",
					"resources1:VCPU": "1", "resources2:DISK_GB": "1",
					"trait2:CUSTOM_FAST": "required", "group_policy": "none"},
			} {
				r, err := resourcerequest.New(
					cellwire.Flavor{ID: "1",
						Flavor: plugins.Flavor{VCPUs: 1, MemoryMB: 512, RootGB: 1, ExtraSpecs: specs}}, nil)
				check(t, err)
				for _, tree := range []string{"", providerUUID(2)} {
					r.InTree = tree
					found, err := c.Candidates(t.Context(), r)
					if err != nil || len(found) != 1 || found[0].Root != providerUUID(2) {
						t.Errorf("%v in %q: %+v, %v", specs, tree, found, err)
						continue
					}
					check(t, c.Claim(t.Context(), testConsumer, nil, found[0]))
					check(t, c.Release(t.Context(), testConsumer.UUID))
				}
			}
			// There are no extensions.
			if _, err := c.Candidates(t.Context(), groupedRequest(t, nil)); !isPolicyRefusal(err) {
				t.Errorf("several groups without group_policy: %v", err)
			}
			// An unknown trait or class is the flavor's fault, and not Placement's.
			for _, specs := range []map[string]string{{"trait:CUSTOM_NOBODYS": "required"},
				{"resources:CUSTOM_NOBODYS": "1"}} {
				r, err := resourcerequest.New(
					cellwire.Flavor{ID: "1",
						Flavor: plugins.Flavor{VCPUs: 1, MemoryMB: 512, RootGB: 1, ExtraSpecs: specs}}, nil)
				check(t, err)
				if _, err := c.Candidates(t.Context(), r); !errors.Is(err, placementclient.ErrInvalid) ||
					placementclient.Down(err) {
					t.Errorf("%v: %v", specs, err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			check(t, real.Reset(t.Context()))
			s := &rig{t: t, handler: httputil.NewSingleHostReverseProxy(at)}
			test(t, s, newClient(t, s))
		})
	}
}
