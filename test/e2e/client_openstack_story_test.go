// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestOpenstackWithoutAuthentication: a cloud of one machine, without a service that issues tokens.
// The commands use the newest microversion that they know.
func TestOpenstackWithoutAuthentication(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	o := newOpenstack(t, "--os-auth-type", "none", "--os-endpoint", newPlacement(t),
		"--os-placement-api-version", "1.39")

	var host, numa struct {
		UUID   string `json:"uuid"`
		Parent string `json:"parent_provider_uuid"`
		Root   string `json:"root_provider_uuid"`
	}
	o.do(&host, "resource", "provider", "create", "host")
	o.do(&numa, "resource", "provider", "create", "numa0", "--parent-provider", host.UUID)
	if numa.Parent != host.UUID || numa.Root != host.UUID {
		t.Errorf("numa0 is %+v, not a child of %s", numa, host.UUID)
	}

	var inventories []struct {
		Class    string  `json:"resource_class"`
		Total    int     `json:"total"`
		Reserved int     `json:"reserved"`
		Ratio    float64 `json:"allocation_ratio"`
	}
	o.do(&inventories, "resource", "provider", "inventory", "set", numa.UUID, "--resource", "VCPU=8",
		"--resource", "VCPU:allocation_ratio=4.0", "--resource", "VCPU:reserved=1", "--resource", "MEMORY_MB=16384")
	if len(inventories) != 2 {
		t.Errorf("inventories are %+v", inventories)
	}
	for _, inv := range inventories {
		if inv.Class == "VCPU" && (inv.Total != 8 || inv.Reserved != 1 || inv.Ratio != 4) {
			t.Errorf("the inventory of VCPU is %+v", inv)
		}
	}

	o.do(nil, "trait", "create", "CUSTOM_FAST")
	var traits []struct {
		Name string `json:"name"`
	}
	o.do(&traits, "resource", "provider", "trait", "set", numa.UUID, "--trait", "CUSTOM_FAST",
		"--trait", "HW_CPU_X86_AVX2")
	if len(traits) != 2 {
		t.Errorf("the traits are %v", traits)
	}
	aggregate := uuid.NewString()
	var aggregates []struct {
		UUID string `json:"uuid"`
	}
	o.do(&aggregates, "resource", "provider", "aggregate",
		"set", host.UUID, "--aggregate", aggregate, "--generation", "0")
	if len(aggregates) != 1 || aggregates[0].UUID != aggregate {
		t.Errorf("the aggregates are %v", aggregates)
	}

	var candidates []struct {
		Allocation string `json:"allocation"`
		Provider   string `json:"resource provider"`
		Capacity   string `json:"inventory used/capacity"`
		Traits     string `json:"traits"`
	}
	o.do(&candidates, "allocation", "candidate", "list", "--resource", "VCPU=2", "--resource", "MEMORY_MB=1024",
		"--required", "CUSTOM_FAST", "--forbidden", "HW_CPU_X86_AVX512F", "--member-of", aggregate, "--limit", "5")
	if len(candidates) != 1 || candidates[0].Provider != numa.UUID ||
		!strings.Contains(candidates[0].Capacity, "VCPU=0/28") {
		t.Errorf("the candidates are %+v", candidates)
	}

	consumer := uuid.NewString()
	var allocations []struct {
		Provider  string         `json:"resource_provider"`
		Resources map[string]int `json:"resources"`
		Project   string         `json:"project_id"`
		Type      string         `json:"consumer_type"`
	}
	o.do(&allocations, "resource", "provider", "allocation", "set", consumer, "--allocation", "rp="+numa.UUID+",VCPU=2",
		"--allocation", "rp="+numa.UUID+",MEMORY_MB=1024",
		"--project-id", "p", "--user-id", "u", "--consumer-type", "INSTANCE")
	if len(allocations) != 1 || allocations[0].Provider != numa.UUID || allocations[0].Type != "INSTANCE" ||
		allocations[0].Project != "p" ||
		!maps.Equal(allocations[0].Resources, map[string]int{"VCPU": 2, "MEMORY_MB": 1024}) {
		t.Errorf("the allocations are %+v", allocations)
	}

	// What is in use cannot be deleted, and says so; after its last allocation it can.
	if said := o.refused("resource", "provider", "delete", numa.UUID); !strings.Contains(said, "HTTP 409") {
		t.Errorf("deleting a provider with allocations printed: %s", said)
	}
	o.do(nil, "resource", "provider", "allocation", "delete", consumer)
	o.do(nil, "resource", "provider", "delete", numa.UUID)
	var left []struct {
		Name string `json:"name"`
	}
	o.do(&left, "resource", "provider", "list")
	if len(left) != 1 || left[0].Name != "host" {
		t.Errorf("the providers that are left are %v", left)
	}
}

// TestOpenstackWithAToken: the command line with one of the service's tokens, at the microversion
// that it negotiates.
func TestOpenstackWithAToken(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const token = "the operator's token"
	endpoint := newPlacement(t, "--auth", "token", "--token-file", tokenFile(t, token, "admin"))
	unknown := newOpenstack(t, "--os-auth-type", "admin_token", "--os-endpoint", endpoint, "--os-token", "another")
	testproc.Contains(t, unknown.refused("resource", "provider", "list"), "401", "with an unknown token it printed: %s")

	o := newOpenstack(t, "--os-auth-type", "admin_token",
		"--os-endpoint", endpoint, "--os-token", token, "--os-placement-api-version", "1")
	var provider struct {
		UUID string `json:"uuid"`
	}
	o.do(&provider, "resource", "provider", "create", "host")
	o.do(nil, "resource", "class", "create", "CUSTOM_MAGIC")
	o.do(nil, "resource", "provider", "inventory", "set", provider.UUID, "--resource", "CUSTOM_MAGIC=10")
	consumer := uuid.NewString()
	o.do(nil, "resource", "provider", "allocation", "set", consumer, "--allocation",
		"rp="+provider.UUID+",CUSTOM_MAGIC=3",
		"--project-id", "p", "--user-id", "u")

	type usage struct {
		Class string `json:"resource_class"`
		Usage int    `json:"usage"`
	}
	want := []usage{{"CUSTOM_MAGIC", 3}}
	var ofProvider, ofProject []usage
	o.do(&ofProvider, "resource", "provider", "usage", "show", provider.UUID)
	o.do(&ofProject, "resource", "usage", "show", "p")
	testproc.Samef(t, cmp.Diff(want, ofProvider), "usages of the provider")
	testproc.Samef(t, cmp.Diff(want, ofProject), "usages of the project")
	var shown struct {
		Allocations map[string]struct {
			Resources map[string]int `json:"resources"`
		} `json:"allocations"`
	}
	o.do(&shown, "resource", "provider", "show", provider.UUID, "--allocations")
	if got := slices.Collect(maps.Keys(shown.Allocations)); len(got) != 1 || got[0] != consumer {
		t.Errorf("the consumers of the provider are %v, not %s", got, consumer)
	}
}
