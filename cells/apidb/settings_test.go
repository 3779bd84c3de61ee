// SPDX-License-Identifier: Apache-2.0

package apidb_test

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func testQuotas(t *testing.T, e testEngine) {
	s := e.fresh(t)
	wants[apidb.QuotaSet](t, "no quotas")(s.Quotas(ctx, "p"))(apidb.QuotaSet{})
	must(t, s.SetQuotas(ctx, "p", apidb.QuotaSet{"instances": 8, "cores": -1}))
	must(t, s.SetQuotas(ctx, "p", apidb.QuotaSet{"instances": 0, "ram": 1024}))
	must(t, s.SetQuotas(ctx, "q", apidb.QuotaSet{"instances": 1}))
	wantError(t, "a limit below none", s.SetQuotas(ctx, "p", apidb.QuotaSet{"instances": 5, "ram": -2}),
		apidb.ErrInvalid)
	wants[apidb.QuotaSet](t, "quotas")(s.Quotas(ctx, "p"))(apidb.QuotaSet{"instances": 0, "cores": -1, "ram": 1024})
	must(t, s.DeleteQuotas(ctx, "p"))
	must(t, s.DeleteQuotas(ctx, "p"))
	wants[apidb.QuotaSet](t, "quotas that were removed")(s.Quotas(ctx, "p"))(apidb.QuotaSet{})
	wants[apidb.QuotaSet](t, "another project's quotas")(s.Quotas(ctx, "q"))(apidb.QuotaSet{"instances": 1})
}

func testFlavors(t *testing.T, e testEngine) {
	s := e.fresh(t)
	text := "for small things"
	small := apidb.Flavor{Flavor: cellwire.Flavor{
		ID: "2", Flavor: plugins.Flavor{
			Name: "small", VCPUs: 1, MemoryMB: 64, RootGB: 3, EphemeralGB: 4, SwapMB: 5,
			ExtraSpecs: map[string]string{"resources:CUSTOM_A": "1"},
		},
	}, Description: &text, IsPublic: true, RxTxFactor: 1.5}
	large := apidb.Flavor{Flavor: cellwire.Flavor{ID: "1",
		Flavor: plugins.Flavor{Name: "large", VCPUs: 8, MemoryMB: 4096}}, Disabled: true, RxTxFactor: 1}
	must(t, s.CreateFlavor(ctx, small))
	must(t, s.CreateFlavor(ctx, large))
	wants[[]apidb.Flavor](t, "flavors by flavorid")(s.Flavors(ctx))([]apidb.Flavor{large, small})
	wants[apidb.Flavor](t, "flavor")(s.Flavor(ctx, "2"))(small)
	wantError(t, "the same flavorid", s.CreateFlavor(ctx,
		apidb.Flavor{Flavor: cellwire.Flavor{ID: "2", Flavor: plugins.Flavor{Name: "other"}}}), apidb.ErrExists)
	wantError(t, "the same name", s.CreateFlavor(ctx,
		apidb.Flavor{Flavor: cellwire.Flavor{ID: "3", Flavor: plugins.Flavor{Name: "small"}}}), apidb.ErrExists)
	wantError(t, "no name", s.CreateFlavor(ctx, apidb.Flavor{Flavor: cellwire.Flavor{ID: "3"}}), apidb.ErrInvalid)

	bare := func(f *apidb.Flavor) error {
		f.VCPUs, f.Name, f.Description, f.ExtraSpecs = 99, "renamed", nil, nil
		return nil
	}
	refusal := errors.New("it is not to be changed")
	_, err := s.ChangeFlavor(ctx, "2", func(f *apidb.Flavor) error { return errors.Join(bare(f), refusal) })
	wantError(t, "a change that is refused", err, refusal)
	wants[apidb.Flavor](t, "a flavor whose change was refused")(s.Flavor(ctx, "2"))(small)
	small.Description, small.ExtraSpecs = nil, nil
	wants[apidb.Flavor](t, "only description and extra specs change")(s.ChangeFlavor(ctx, "2", bare))(small)
	wants[apidb.Flavor](t, "the changed flavor")(s.Flavor(ctx, "2"))(small)

	must(t, s.DeleteFlavor(ctx, "2"))
	wantError(t, "deleting again", s.DeleteFlavor(ctx, "2"), apidb.ErrNotFound)
	_, err = s.ChangeFlavor(ctx, "2", bare)
	wantError(t, "changing what is deleted", err, apidb.ErrNotFound)
	_, err = s.Flavor(ctx, "2")
	wantError(t, "reading what is deleted", err, apidb.ErrNotFound)
}

// testFlavorChangesAtOnce: of changes at the same time none is lost.
func testFlavorChangesAtOnce(t *testing.T, e testEngine) {
	s := e.fresh(t)
	must(t, s.CreateFlavor(ctx, apidb.Flavor{Flavor: cellwire.Flavor{ID: "1", Flavor: plugins.Flavor{Name: "a"}}}))
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			_, err := s.ChangeFlavor(ctx, "1", func(f *apidb.Flavor) error {
				specs := maps.Clone(f.ExtraSpecs)
				if specs == nil {
					specs = map[string]string{}
				}
				specs[fmt.Sprintf("hw:%d", i)] = "x"
				f.ExtraSpecs = specs
				return nil
			})
			testproc.NoError(t, err)
		})
	}
	all.Wait()
	f := testproc.Try(s.Flavor(ctx, "1")).Or(t)
	if len(f.ExtraSpecs) != 20 {
		t.Errorf("20 extra specs were set, and there are %v", f.ExtraSpecs)
	}
}
