// SPDX-License-Identifier: Apache-2.0

package placing_test

import (
	"errors"
	"net/http/httputil"
	"net/url"
	"testing"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/placing"
	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/realservice"
)

// TestWithOpenStacksPlacement: what is true of our Placement is true of OpenStack's.
func TestWithOpenStacksPlacement(t *testing.T) {
	real := realservice.StartPlacement(t)
	at, err := url.Parse(real.URL)
	ok(t, err)
	for name, test := range map[string]func(*testing.T, *service, *placing.Client){
		"life":    life,
		"no room": noRoom,
		"a tree of many": func(t *testing.T, s *service, c *placing.Client) {
			for n := range 5 {
				s.node(n, room())
			}
			r := request(t)
			r.InTree, r.Limit = id(3), 10
			found, err := c.Candidates(t.Context(), r)
			ok(t, err)
			if len(found) != 1 || found[0].Root != id(3) {
				t.Errorf("%+v", found)
			}
			r.InTree, r.Limit = "", 2
			if found, err = c.Candidates(t.Context(), r); err != nil || len(found) != 2 {
				t.Errorf("at most two are %+v, %v", found, err)
			}
		},
		"groups": func(t *testing.T, s *service, c *placing.Client) {
			s.put("/traits/CUSTOM_FAST", nil)
			s.node(1, room())
			s.node(2, room(), "CUSTOM_FAST")
			s.node(3, room(), "CUSTOM_FAST", placing.TraitDisabled)
			for _, specs := range []map[string]string{
				{"trait:CUSTOM_FAST": "required"},
				{"resources:DISK_GB": "0", "resources1:DISK_GB": "1", "trait1:CUSTOM_FAST": "required", "group_policy": "none"},
				{"resources:VCPU": "0", "resources:MEMORY_MB": "0", "resources:DISK_GB": "0", "resources1:VCPU": "1", "resources2:DISK_GB": "1",
					"trait2:CUSTOM_FAST": "required", "group_policy": "none"},
			} {
				r, err := placing.RequestOf(cellwire.Flavor{ID: "1", Flavor: plugins.Flavor{VCPUs: 1, MemoryMB: 512, RootGB: 1, ExtraSpecs: specs}})
				ok(t, err)
				for _, tree := range []string{"", id(2)} {
					r.InTree = tree
					found, err := c.Candidates(t.Context(), r)
					if err != nil || len(found) != 1 || found[0].Root != id(2) {
						t.Errorf("%v in %q: %+v, %v", specs, tree, found, err)
						continue
					}
					ok(t, c.Claim(t.Context(), server, found[0]))
					ok(t, c.Release(t.Context(), server.UUID))
				}
			}
			// There are no extensions.
			if _, err := c.Candidates(t.Context(), grouped(t, nil)); !refusedForPolicy(err) {
				t.Errorf("several groups without group_policy: %v", err)
			}
			// What nobody knows is the flavor's fault, and not Placement's.
			for _, specs := range []map[string]string{{"trait:CUSTOM_NOBODYS": "required"}, {"resources:CUSTOM_NOBODYS": "1"}} {
				r, err := placing.RequestOf(cellwire.Flavor{ID: "1", Flavor: plugins.Flavor{VCPUs: 1, MemoryMB: 512, RootGB: 1, ExtraSpecs: specs}})
				ok(t, err)
				if _, err := c.Candidates(t.Context(), r); !errors.Is(err, placementclient.ErrInvalid) || placementclient.Down(err) {
					t.Errorf("%v: %v", specs, err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			ok(t, real.Reset(t.Context()))
			s := &service{t: t, handler: httputil.NewSingleHostReverseProxy(at)}
			test(t, s, client(t, s))
		})
	}
}
