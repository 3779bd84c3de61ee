// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/internal/osapi"
)

// BenchmarkDetail shows 1000 servers to an administrator: views and JSON, without the cells.
func BenchmarkDetail(b *testing.B) {
	a := &API{options: Options{}.withDefaults()}
	x := &api.Exchange{Service: &api.Service{Policy: DefaultPolicy()}, Version: api.MaxVersion}
	x.R, x.Who = httptest.NewRequest(http.MethodGet, "/v2.1/servers/detail", nil),
		osapi.Principal{User: "u", Project: "p1", Roles: []string{"admin"}}
	s := server(1, "web")
	s.VMState, s.ProjectID = "active", "p1"
	b.ReportAllocs()
	for b.Loop() {
		view := a.newServerView(x, "p1")
		records := make(api.List, 0, 1000)
		for range 1000 {
			records = append(records, view.whole(&s))
		}
		if len(new(api.Object).Add("servers", records).Bytes()) == 0 {
			b.Fatal("nothing")
		}
	}
}
