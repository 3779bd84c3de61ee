// SPDX-License-Identifier: Apache-2.0

package serverview

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/plugins"
)

// BenchmarkDetail shows 1000 servers to an administrator: views and JSON, without the cells.
func BenchmarkDetail(b *testing.B) {
	d := &Servers{DefaultZone: "nova"}
	policy := api.NewPolicy([]api.Rule{ruleExtendedAttrs, ruleShowExtraSpecs, ruleShowHostStatus, ruleShowHostUnknown})
	x := &api.Exchange{Service: &api.Service{Policy: policy}, Version: api.MaxVersion}
	x.R, x.Caller = httptest.NewRequest(http.MethodGet, "/v2.1/servers/detail", nil),
		osapi.Principal{User: "u", Project: "p1", Roles: []string{"admin"}}
	s := cellwire.Server{
		UUID: "00000001-0000-4000-8000-000000000001", Name: "web", Host: "h1", Node: "h1",
		HostUp: true, ID: 1, ImageRef: "70a599e0-31e7-49b7-b260-868f441e862b",
		Flavor:  cellwire.Flavor{ID: "1", Flavor: plugins.Flavor{Name: "m1.tiny", VCPUs: 1, MemoryMB: 512, RootGB: 1}},
		VMState: "active", ProjectID: "p1",
	}
	b.ReportAllocs()
	for b.Loop() {
		view := d.View(x, "p1")
		records := make(api.List, 0, 1000)
		for range 1000 {
			records = append(records, view.Whole(&s))
		}
		if len(new(api.Object).Add("servers", records).Bytes()) == 0 {
			b.Fatal("nothing")
		}
	}
}
