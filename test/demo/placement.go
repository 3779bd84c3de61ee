// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/placement/placementclient"
)

// placementURL is where the bundled Placement listens by default.
const placementURL = "http://127.0.0.1:8778"

// rootUUID is the identity of the host, which nova-compute gave it.
const rootUUID = "c0ffee00-0000-4000-8000-0000000000c1"

// newClient makes a client that asks as nova-compute's microversions of old and today's scheduler
// do.
func newClient() (*placementclient.Client, error) {
	return placementclient.New(placementclient.Config{URL: placementURL, Microversion: "1.36",
		Authorize: func(_ context.Context, h http.Header) error {
			h.Set("X-Auth-Token", "admin")
			return nil
		}})
}

// request sends one request to Placement; answer may be nil.
func request(ctx context.Context, method, path string, body, answer any) error {
	client, err := newClient()
	if err != nil {
		return err
	}
	return client.Do(ctx, method, path, body, answer)
}

// writeAsNova makes Placement say what nova-compute said before there were nested providers:
// everything is on one.
func writeAsNova(ctx context.Context) error {
	type object = map[string]any
	inventory := func(total, reserved int, ratio float64) object {
		return object{"total": total, "reserved": reserved,
			"min_unit": 1, "max_unit": total, "step_size": 1, "allocation_ratio": ratio}
	}
	writes := []struct {
		method, path string
		body         any
	}{
		{http.MethodPost, "/resource_providers", object{"name": hostName, "uuid": rootUUID}},
		{http.MethodPut, "/resource_providers/" + rootUUID + "/inventories",
			object{"resource_provider_generation": 0, "inventories": object{
				"VCPU": inventory(16, 0, 4), "MEMORY_MB": inventory(32768, 512, 1),
				"DISK_GB": inventory(500, 0, 1), "VGPU": inventory(16, 0, 1),
			}}},
	}
	for _, g := range guests {
		writes = append(writes, struct {
			method, path string
			body         any
		}{http.MethodPut, "/allocations/" + g.uuid, object{
			"allocations": object{rootUUID: object{"resources": g.holds()}},
			"project_id":  "demo", "user_id": "demo", "consumer_generation": nil,
		}})
	}
	for _, w := range writes {
		if err := request(ctx, w.method, w.path, w.body, nil); err != nil {
			return fmt.Errorf("writing what nova-compute wrote: %w", err)
		}
	}
	return nil
}

// readInventory asks what the host has.
func readInventory(ctx context.Context) (string, error) {
	var answer struct {
		Inventories map[string]struct {
			Total int64 `json:"total"`
		} `json:"inventories"`
	}
	if err := request(ctx, http.MethodGet, "/resource_providers/"+rootUUID+"/inventories", nil, &answer); err != nil {
		return "", err
	}
	totals := map[string]int64{}
	for class, i := range answer.Inventories {
		totals[class] = i.Total
	}
	return amounts(totals), nil
}

// holdings say of each guest what it holds of which provider: name of the guest, name of the
// provider, class.
type holdings map[string]map[string]map[string]int64

// readHoldings asks Placement for the allocations of every guest.
func readHoldings(ctx context.Context) (holdings, error) {
	names, err := providerNames(ctx)
	if err != nil {
		return nil, err
	}
	h := holdings{}
	for _, g := range guests {
		if h[g.name], err = heldBy(ctx, g.uuid, names); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// holdingsOf asks what one consumer holds.
func holdingsOf(ctx context.Context, uuid string) (map[string]map[string]int64, error) {
	names, err := providerNames(ctx)
	if err != nil {
		return nil, err
	}
	return heldBy(ctx, uuid, names)
}

func heldBy(ctx context.Context, uuid string, names map[string]string) (map[string]map[string]int64, error) {
	client, err := newClient()
	if err != nil {
		return nil, err
	}
	held, err := client.Allocations(ctx, uuid)
	if err != nil {
		return nil, err
	}
	out := map[string]map[string]int64{}
	for provider, amounts := range held.Allocations {
		name, known := names[provider]
		if !known {
			name = provider // on another host: it will be noticed
		}
		out[name] = amounts
	}
	return out, nil
}

// providerNames are those of the host's tree, by uuid.
func providerNames(ctx context.Context) (map[string]string, error) {
	client, err := newClient()
	if err != nil {
		return nil, err
	}
	tree, err := client.ProvidersInTree(ctx, rootUUID)
	if err != nil {
		return nil, err
	}
	names := map[string]string{}
	for _, p := range tree {
		names[p.UUID] = p.Name
	}
	return names, nil
}

// complete says what is not as it was: each guest holds of each class what it always held.
func (h holdings) complete() error {
	for _, g := range guests {
		sums := map[string]int64{}
		for _, resources := range h[g.name] {
			for class, amount := range resources {
				sums[class] += amount
			}
		}
		if want := g.holds(); !maps.Equal(sums, want) {
			return fmt.Errorf("guest %s holds %v, not the %v that it held", g.name, sums, want)
		}
	}
	return nil
}

// at says what is not where it is to be.
func (h holdings) at(provider, class string, names ...string) error {
	for _, name := range names {
		if h[name][provider][class] == 0 {
			return fmt.Errorf("guest %s holds no %s of %s, but: %s", name, class, provider, h.line(name))
		}
	}
	return nil
}

// String is a table.
func (h holdings) String() string {
	var b strings.Builder
	for _, g := range guests {
		fmt.Fprintf(&b, "%-6s  %s\n", g.name, h.line(g.name))
	}
	return b.String()
}

func (h holdings) line(name string) string {
	var parts []string
	for _, provider := range slices.Sorted(maps.Keys(h[name])) {
		parts = append(parts, provider+": "+amounts(h[name][provider]))
	}
	return strings.Join(parts, "; ")
}

// amounts writes them in the order in which people think of them.
func amounts(resources map[string]int64) string {
	order := []string{"VCPU", "MEMORY_MB", "DISK_GB", "VGPU"}
	var parts []string
	for _, class := range slices.SortedFunc(maps.Keys(resources),
		func(a, b string) int { return slices.Index(order, a) - slices.Index(order, b) }) {
		parts = append(parts, fmt.Sprintf("%s %d", class, resources[class]))
	}
	return strings.Join(parts, ", ")
}

// candidate is a way to serve a request: for each provider, by name, what it would give.
type candidate map[string]map[string]int64

// findCandidates asks what could serve a request.
func findCandidates(ctx context.Context, query string) ([]candidate, error) {
	names, err := providerNames(ctx)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Requests []struct {
			Allocations map[string]struct {
				Resources map[string]int64 `json:"resources"`
			} `json:"allocations"`
		} `json:"allocation_requests"`
	}
	if err := request(ctx, http.MethodGet, "/allocation_candidates?"+query, nil, &answer); err != nil {
		return nil, err
	}
	var found []candidate
	for _, r := range answer.Requests {
		c := candidate{}
		for provider, a := range r.Allocations {
			c[names[provider]] = a.Resources
		}
		found = append(found, c)
	}
	slices.SortFunc(found, func(a, b candidate) int { return strings.Compare(a.String(), b.String()) })
	return found, nil
}

// String is one line.
func (c candidate) String() string {
	var parts []string
	for _, provider := range slices.Sorted(maps.Keys(c)) {
		parts = append(parts, provider+": "+amounts(c[provider]))
	}
	return strings.Join(parts, "; ")
}
