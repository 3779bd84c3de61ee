// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"net/http"
	"testing"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/scheduler"
	"github.com/compute-agent/compute-agent/cells/scheduler/quota"
	"github.com/compute-agent/compute-agent/internal/extraspecs"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestBootWithAliases: PCI devices that a flavor asks for by an alias are granted, each from a
// provider that has one. An alias that is not configured is refused before anything is written.
func TestBootWithAliases(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	w := begin(t, []int{2}, func(o *scheduler.Options, _ *quota.Options) {
		o.Aliases = extraspecs.Aliases{"gpu": {Class: "CUSTOM_GPU", Traits: []string{"CUSTOM_BIG"}}}
	})
	with := func(alias string) func(*scheduler.CreateRequest) {
		return func(r *scheduler.CreateRequest) { r.Flavor.ExtraSpecs = map[string]string{extraspecs.AliasSpec: alias} }
	}
	w.ask(http.MethodPut, "/resource_classes/CUSTOM_GPU", nil, nil)
	w.ask(http.MethodPut, "/traits/CUSTOM_BIG", nil, nil)
	node := w.all()[1].node
	for i, uuid := range []string{"00000000-0000-4000-8000-0000000000a1", "00000000-0000-4000-8000-0000000000a2"} {
		w.ask(http.MethodPost, "/resource_providers", map[string]string{"uuid": uuid, "name": "gpu" +
			string(rune('0'+i)), "parent_provider_uuid": node}, nil)
		w.ask(http.MethodPut, "/resource_providers/"+uuid+"/inventories", map[string]any{
			"resource_provider_generation": 0, "inventories": map[string]any{"CUSTOM_GPU": map[string]int{"total": 1}},
		}, nil)
		w.ask(http.MethodPut, "/resource_providers/"+
			uuid+"/traits", map[string]any{"resource_provider_generation": 1, "traits": []string{"CUSTOM_BIG"}}, nil)
	}
	uuid := w.created(with("gpu:2"))
	w.schedule()
	w.work()
	if row := w.row(uuid); row.VMState != cellwire.VMActive || row.Host != "cell1-host2" {
		t.Fatalf("%+v, fault %+v", row, row.Fault)
	}
	var held struct {
		Allocations map[string]struct {
			Resources map[string]int `json:"resources"`
		} `json:"allocations"`
	}
	w.ask(http.MethodGet, "/allocations/"+uuid, nil, &held)
	gpus := 0
	for _, of := range held.Allocations {
		gpus += of.Resources["CUSTOM_GPU"]
	}
	if len(held.Allocations) != 3 || gpus != 2 {
		t.Errorf("the allocations: got %+v, want three providers and two GPUs", held.Allocations)
	}
	if row := w.row(uuid); row.Flavor.ExtraSpecs[extraspecs.AliasSpec] != "gpu:2" || len(row.Flavor.ExtraSpecs) != 1 {
		t.Errorf("its flavor has %v", row.Flavor.ExtraSpecs)
	}
	if _, err := w.create(with("fpga:1")); err == nil || !containsText("PCI alias fpga is not defined")(err) {
		t.Errorf("creating a server with an unknown alias: got %v", err)
	}
}
