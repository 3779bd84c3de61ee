// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/compute/api"
	js "github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/internal/osapi"
)

// flavorRoutes are the calls that read flavors. Everybody may; a flavor that is not public is for
// administrators, because this service has no lists of projects that may use one
// (os-flavor-access).
func (d *Deps) flavorRoutes() []api.Route {
	return []api.Route{
		{Method: "GET", Path: "/v2.1/flavors", Query: &flavorQuery, Handle: d.listFlavors},
		{Method: "GET", Path: "/v2.1/flavors/detail", Query: &flavorQuery, Handle: d.listFlavorsDetail,
			Rules: []api.Rule{ruleFlavorSpecsIndex}},
		{Method: "GET", Path: "/v2.1/flavors/{id}", Handle: d.showFlavor, Rules: []api.Rule{ruleFlavorSpecsIndex}},
	}
}

// The microversions of flavors.
const (
	vFlavorDescription api.Version = 55
	vFlavorSpecs       api.Version = 61 // extra specs are shown with the flavor
)

// flavorQuery are the parameters of lists of flavors.
var flavorQuery = api.Parameters{All: []api.Parameter{
	{Name: "limit", Schema: api.SchemaAnyNumber, Text: api.TextLimit},
	{Name: "marker", Schema: api.SchemaText, Text: "The id of a flavor: the page begins after it."},
	{Name: "is_public", Schema: api.SchemaText,
		Text: "A boolean, or none for both; for administrators, and ignored for others, who see public ones."},
	{Name: "minRam", Schema: api.SchemaText, Text: "Those with at least so much memory, in MiB."},
	{Name: "minDisk", Schema: api.SchemaText, Text: "Those with at least such a disk, in GiB."},
	{Name: "sort_key", Text: "What to sort by; the id without one.",
		Schema: js.Schema{js.Type("string"), js.Enum("created_at", "description", "disabled",
			"ephemeral_gb", "flavorid", "id", "is_public", "memory_mb", "name", "root_gb", "rxtx_factor", "swap",
			"updated_at", "vcpu_weight", "vcpus")}},
	{Name: "sort_dir", Text: "asc without one.", Schema: js.Schema{js.Type("string"), js.Enum("asc", "desc")}},
}}

// flavorNotFound is the 404 for a flavor.
func flavorNotFound(id string) error {
	return osapi.NotFound("Flavor %s could not be found.", osapi.Shortened(id))
}

// Flavor is one that the caller may know of. Errors wrap [apidb.ErrNotFound].
func (d *Deps) Flavor(x *api.Exchange, id string) (apidb.Flavor, error) {
	f, err := d.Store.Flavor(x.Context(), id)
	if err == nil && !f.IsPublic && !x.IsAdmin() {
		return apidb.Flavor{}, apidb.ErrNotFound
	}
	return f, err
}

// flavorOfPath is the flavor that the path names, or a 404.
func (d *Deps) flavorOfPath(x *api.Exchange) (apidb.Flavor, error) {
	f, err := d.Flavor(x, x.Param("id"))
	return f, api.RefuseIf(err, apidb.ErrNotFound, flavorNotFound(x.Param("id")))
}

// showFlavor answers GET /flavors/{id}.
func (d *Deps) showFlavor(x *api.Exchange) error {
	f, err := d.flavorOfPath(x)
	if err != nil {
		return err
	}
	return oneFlavor(x, &f)
}

func oneFlavor(x *api.Exchange, f *apidb.Flavor) error {
	return x.JSON(http.StatusOK, new(api.Object).Add("flavor", flavorView(x, f)))
}

// flavorView is a flavor as the microversion has it.
func flavorView(x *api.Exchange, f *apidb.Flavor) *api.Object {
	o := new(api.Object).Add("id", f.ID).Add("name", f.Name).Add("ram", f.MemoryMB).Add("disk", f.RootGB)
	if f.SwapMB == 0 {
		o.Add("swap", "")
	} else {
		o.Add("swap", f.SwapMB)
	}
	o.Add("OS-FLV-EXT-DATA:ephemeral", f.EphemeralGB).Add("OS-FLV-DISABLED:disabled", f.Disabled).
		Add("vcpus", f.VCPUs).Add("os-flavor-access:is_public", f.IsPublic)
	if f.RxTxFactor == 0 {
		o.Add("rxtx_factor", "")
	} else {
		o.AddNumber("rxtx_factor", f.RxTxFactor)
	}
	o.Add("links", x.Links("flavors", f.ID))
	if x.AtLeast(vFlavorDescription) {
		o.Add("description", f.Description)
	}
	if x.AtLeast(vFlavorSpecs) && x.Allows(ruleFlavorSpecsIndex, x.Caller.Project) {
		o.Add("extra_specs", f.ExtraSpecs)
	}
	return o
}

// listFlavors answers GET /flavors, listFlavorsDetail GET /flavors/detail.
func (d *Deps) listFlavors(x *api.Exchange) error {
	return d.flavorPage(x, "flavors", func(f *apidb.Flavor) *api.Object {
		o := new(api.Object).Add("id", f.ID).Add("name", f.Name).Add("links", x.Links("flavors", f.ID))
		if x.AtLeast(vFlavorDescription) {
			o.Add("description", f.Description)
		}
		return o
	})
}

func (d *Deps) listFlavorsDetail(x *api.Exchange) error {
	return d.flavorPage(x, "flavors/detail", func(f *apidb.Flavor) *api.Object { return flavorView(x, f) })
}

// flavorPage answers with the flavors that a query asks for. There are few, so all are read, and
// chosen from.
func (d *Deps) flavorPage(x *api.Exchange, collection string, view func(*apidb.Flavor) *api.Object) error {
	limit := api.ReadLimit(x.Params, d.MaxLimit)
	wanted, err := flavorFilter(x, x.Params)
	if err != nil {
		return err
	}
	all, err := d.Store.Flavors(x.Context())
	if err != nil {
		return err
	}
	sortFlavors(all, x.Params.Last("sort_key"), x.Params.Last("sort_dir") == "desc")
	if marker := x.Params.Last("marker"); x.Params.Has("marker") {
		at := slices.IndexFunc(all, func(f apidb.Flavor) bool { return f.ID == marker && (f.IsPublic || x.IsAdmin()) })
		if at < 0 {
			return osapi.BadRequest("marker [%s] not found", osapi.Shortened(marker))
		}
		all = all[at+1:]
	}
	shown, marker := api.List{}, ""
	for i := range all {
		if len(shown) == limit {
			break
		}
		if f := &all[i]; wanted(f) {
			shown, marker = append(shown, view(f)), f.ID
		}
	}
	answer := new(api.Object).Add("flavors", shown)
	if len(shown) > 0 && len(shown) == limit {
		answer.Add("flavors_links", x.NextLink(collection, x.Params, marker))
	}
	return x.JSON(http.StatusOK, answer)
}

// flavorFilter are the conditions of a query. Only administrators see flavors that are not public,
// or disabled.
func flavorFilter(x *api.Exchange, params api.Query) (func(*apidb.Flavor) bool, error) {
	public, disabled := new(true), false
	if x.IsAdmin() {
		disabled = true
		if params.Has("is_public") {
			var err error
			if public, err = parseIsPublic(params.Last("is_public")); err != nil {
				return nil, err
			}
		}
	}
	least := map[string]int64{"minRam": 0, "minDisk": 0}
	for _, name := range []string{"minRam", "minDisk"} {
		if !params.Has(name) {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(params.Last(name)), 10, 64)
		if err != nil {
			return nil, osapi.BadRequest("Invalid %s filter [%s]", name, osapi.Shortened(params.Last(name)))
		}
		least[name] = n
	}
	return func(f *apidb.Flavor) bool {
		return (public == nil || *public == f.IsPublic) &&
			(disabled || !f.Disabled) && f.MemoryMB >= least["minRam"] && f.RootGB >= least["minDisk"]
	}, nil
}

// parseIsPublic is nil for none, which stands for both.
func parseIsPublic(text string) (*bool, error) {
	if strings.EqualFold(strings.TrimSpace(text), "none") {
		return nil, nil
	}
	value, known := api.ReadBool(text)
	if !known {
		return nil, osapi.BadRequest("Invalid is_public filter [%s]", osapi.Shortened(text))
	}
	return &value, nil
}

// flavorKeys compare flavors. created_at, updated_at, id and vcpu_weight, which Nova's have as
// well, make no difference here.
var flavorKeys = map[string]func(a, b *apidb.Flavor) int{
	"description": func(a, b *apidb.Flavor) int {
		return strings.Compare(api.OrEmpty(a.Description), api.OrEmpty(b.Description))
	},
	"disabled":     func(a, b *apidb.Flavor) int { return compareBool(a.Disabled, b.Disabled) },
	"ephemeral_gb": func(a, b *apidb.Flavor) int { return cmp.Compare(a.EphemeralGB, b.EphemeralGB) },
	"is_public":    func(a, b *apidb.Flavor) int { return compareBool(a.IsPublic, b.IsPublic) },
	"memory_mb":    func(a, b *apidb.Flavor) int { return cmp.Compare(a.MemoryMB, b.MemoryMB) },
	"name":         func(a, b *apidb.Flavor) int { return strings.Compare(a.Name, b.Name) },
	"root_gb":      func(a, b *apidb.Flavor) int { return cmp.Compare(a.RootGB, b.RootGB) },
	"rxtx_factor":  func(a, b *apidb.Flavor) int { return cmp.Compare(a.RxTxFactor, b.RxTxFactor) },
	"swap":         func(a, b *apidb.Flavor) int { return cmp.Compare(a.SwapMB, b.SwapMB) },
	"vcpus":        func(a, b *apidb.Flavor) int { return cmp.Compare(a.VCPUs, b.VCPUs) },
}

// sortFlavors sorts by a key, and by the flavor's id among equals.
func sortFlavors(all []apidb.Flavor, key string, desc bool) {
	slices.SortFunc(all, func(a, b apidb.Flavor) int {
		order := 0
		if compare := flavorKeys[key]; compare != nil {
			order = compare(&a, &b)
		}
		if order == 0 {
			order = strings.Compare(a.ID, b.ID)
		}
		if desc {
			return -order
		}
		return order
	})
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
