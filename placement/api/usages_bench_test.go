// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/compute-agent/compute-agent/placement/api"
	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/providertree"
)

// BenchmarkProjectUsages is GET /usages of a project with 100 consumers among 100,000, of 1,000
// projects.
func BenchmarkProjectUsages(b *testing.B) {
	const consumers, projects = 100_000, 1000
	l := openLedger(b)
	h := newAPI(b, func(c *api.Config) { c.Ledger = l })
	host(b, h)
	if _, err := l.Update(context.Background(), func(tx *ledger.Tx) error {
		if _, err := tx.SetInventories(rp1, 1,
			[]ledger.Inventory{{Class: "VCPU", Total: 1 << 30, MinUnit: 1, MaxUnit: 1 << 30, StepSize: 1,
				AllocationRatio: 1}}); err != nil {
			return err
		}
		list := make([]ledger.ConsumerAllocations, consumers)
		for i := range list {
			list[i] = ledger.ConsumerAllocations{Consumer: fmt.Sprintf("%036d", i),
				Project: fmt.Sprint("project", i%projects), User: "user",
				Resources: providertree.ProviderResources{rp1: {"VCPU": 1}}}
		}
		return tx.ReplaceAllocations(list)
	}); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		r := httptest.NewRequest(http.MethodGet, fmt.Sprint("/usages?project_id=project", i%projects), nil)
		r.Header.Set("X-Auth-Token", "admin")
		r.Header.Set("OpenStack-API-Version", "placement 1.39")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusOK || w.Body.Len() < 50 {
			b.Fatal(w.Code, w.Body)
		}
	}
}
