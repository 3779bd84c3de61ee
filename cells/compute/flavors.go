// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/compute-agent/compute-agent/cells/apidb"
	js "github.com/compute-agent/compute-agent/internal/jsonkit"
)

// flavorRoutes are the calls that read flavors. Everybody may; a flavor that is not public is for
// administrators, because this service has no lists of projects that may use one
// (os-flavor-access).
func (a *API) flavorRoutes() []route {
	return []route{
		{method: "GET", path: "/v2.1/flavors", query: &flavorQuery, handle: a.listFlavors, about: &aboutListFlavors},
		{method: "GET", path: "/v2.1/flavors/detail", query: &flavorQuery, handle: a.listFlavorsDetail, about: &aboutListFlavorsDetail},
		{method: "GET", path: "/v2.1/flavors/{id}", handle: a.showFlavor, about: &aboutShowFlavor},
	}
}

// The microversions of flavors.
const (
	vFlavorDescription Version = 55
	vFlavorSpecs       Version = 61 // extra specs are shown with the flavor
)

// flavorQuery are the parameters of lists of flavors.
var flavorQuery = parameters{all: []parameter{
	{name: "limit", schema: schemaAnyNumber, text: textLimit},
	{name: "marker", schema: schemaText, text: "The id of a flavor: the page begins after it."},
	{name: "is_public", schema: schemaText, text: "A boolean, or none for both; for administrators, and ignored for others, who see public ones."},
	{name: "minRam", schema: schemaText, text: "Those with at least so much memory, in MiB."},
	{name: "minDisk", schema: schemaText, text: "Those with at least such a disk, in GiB."},
	{name: "sort_key", text: "What to sort by; the id without one.", schema: js.Schema{js.Type("string"), js.Enum("created_at", "description", "disabled",
		"ephemeral_gb", "flavorid", "id", "is_public", "memory_mb", "name", "root_gb", "rxtx_factor", "swap", "updated_at", "vcpu_weight", "vcpus")}},
	{name: "sort_dir", text: "asc without one.", schema: js.Schema{js.Type("string"), js.Enum("asc", "desc")}},
}}

// flavorNotFound is the 404 for a flavor.
func flavorNotFound(id string) error { return notFound("Flavor %s could not be found.", shortened(id)) }

// flavor is one that the caller may know of. Errors wrap [apidb.ErrNotFound].
func (a *API) flavor(x *exchange, id string) (apidb.Flavor, error) {
	f, err := a.store.Flavor(x.ctx(), id)
	if err == nil && !f.IsPublic && !x.isAdmin() {
		return apidb.Flavor{}, apidb.ErrNotFound
	}
	return f, err
}

// flavorOfPath is the flavor that the path names, or a 404.
func (a *API) flavorOfPath(x *exchange) (apidb.Flavor, error) {
	f, err := a.flavor(x, x.param("id"))
	if errors.Is(err, apidb.ErrNotFound) {
		err = flavorNotFound(x.param("id"))
	}
	return f, err
}

// showFlavor answers GET /flavors/{id}.
func (a *API) showFlavor(x *exchange) error {
	f, err := a.flavorOfPath(x)
	if err != nil {
		return err
	}
	return oneFlavor(x, &f)
}

func oneFlavor(x *exchange, f *apidb.Flavor) error {
	return x.json(http.StatusOK, new(object).add("flavor", flavorView(x, f)))
}

// flavorView is a flavor as the microversion has it.
func flavorView(x *exchange, f *apidb.Flavor) *object {
	o := new(object).add("id", f.ID).add("name", f.Name).add("ram", f.MemoryMB).add("disk", f.RootGB)
	if f.SwapMB == 0 {
		o.add("swap", "")
	} else {
		o.add("swap", f.SwapMB)
	}
	o.add("OS-FLV-EXT-DATA:ephemeral", f.EphemeralGB).add("OS-FLV-DISABLED:disabled", f.Disabled).
		add("vcpus", f.VCPUs).add("os-flavor-access:is_public", f.IsPublic)
	if f.RxTxFactor == 0 {
		o.add("rxtx_factor", "")
	} else {
		o.addNumber("rxtx_factor", f.RxTxFactor)
	}
	o.add("links", x.links("flavors", f.ID))
	if x.since(vFlavorDescription) {
		o.add("description", f.Description)
	}
	if x.since(vFlavorSpecs) && x.may(ruleFlavorSpecsIndex, x.Who.Project) {
		o.add("extra_specs", f.ExtraSpecs)
	}
	return o
}

// listFlavors answers GET /flavors, listFlavorsDetail GET /flavors/detail.
func (a *API) listFlavors(x *exchange) error {
	return a.flavorPage(x, "flavors", func(f *apidb.Flavor) *object {
		o := new(object).add("id", f.ID).add("name", f.Name).add("links", x.links("flavors", f.ID))
		if x.since(vFlavorDescription) {
			o.add("description", f.Description)
		}
		return o
	})
}

func (a *API) listFlavorsDetail(x *exchange) error {
	return a.flavorPage(x, "flavors/detail", func(f *apidb.Flavor) *object { return flavorView(x, f) })
}

// flavorPage answers with the flavors that a query asks for. There are few, so all are read, and
// chosen from.
func (a *API) flavorPage(x *exchange, collection string, view func(*apidb.Flavor) *object) error {
	params, err := x.checkedQuery()
	if err != nil {
		return err
	}
	limit := a.options.MaxLimit
	if params.has("limit") {
		// The schema lets digits through only; what is too large for an int is more than the most.
		if n, err := strconv.Atoi(params.last("limit")); err == nil {
			limit = min(limit, n)
		}
	}
	wanted, err := flavorFilter(x, params)
	if err != nil {
		return err
	}
	all, err := a.store.Flavors(x.ctx())
	if err != nil {
		return err
	}
	sortFlavors(all, params.last("sort_key"), params.last("sort_dir") == "desc")
	if marker := params.last("marker"); params.has("marker") {
		at := slices.IndexFunc(all, func(f apidb.Flavor) bool { return f.ID == marker && (f.IsPublic || x.isAdmin()) })
		if at < 0 {
			return badRequest("marker [%s] not found", shortened(marker))
		}
		all = all[at+1:]
	}
	shown, marker := list{}, ""
	for i := range all {
		if len(shown) == limit {
			break
		}
		if f := &all[i]; wanted(f) {
			shown, marker = append(shown, view(f)), f.ID
		}
	}
	answer := new(object).add("flavors", shown)
	if len(shown) > 0 && len(shown) == limit {
		answer.add("flavors_links", x.nextLink(collection, params, marker))
	}
	return x.json(http.StatusOK, answer)
}

// flavorFilter are the conditions of a query. Only administrators see flavors that are not public,
// or disabled.
func flavorFilter(x *exchange, params query) (func(*apidb.Flavor) bool, error) {
	public, disabled := new(true), false
	if x.isAdmin() {
		disabled = true
		if params.has("is_public") {
			var err error
			if public, err = parseIsPublic(params.last("is_public")); err != nil {
				return nil, err
			}
		}
	}
	least := map[string]int64{"minRam": 0, "minDisk": 0}
	for _, name := range []string{"minRam", "minDisk"} {
		if !params.has(name) {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(params.last(name)), 10, 64)
		if err != nil {
			return nil, badRequest("Invalid %s filter [%s]", name, shortened(params.last(name)))
		}
		least[name] = n
	}
	return func(f *apidb.Flavor) bool {
		return (public == nil || *public == f.IsPublic) && (disabled || !f.Disabled) && f.MemoryMB >= least["minRam"] && f.RootGB >= least["minDisk"]
	}, nil
}

// parseIsPublic is nil for none, which stands for both.
func parseIsPublic(text string) (*bool, error) {
	switch strings.ToLower(strings.TrimSpace(text)) {
	case "none":
		return nil, nil
	case "1", "t", "true", "on", "y", "yes":
		return new(true), nil
	case "0", "f", "false", "off", "n", "no":
		return new(false), nil
	}
	return nil, badRequest("Invalid is_public filter [%s]", shortened(text))
}

// flavorKeys compare flavors. created_at, updated_at, id and vcpu_weight, which Nova's have as
// well, make no difference here.
var flavorKeys = map[string]func(a, b *apidb.Flavor) int{
	"description":  func(a, b *apidb.Flavor) int { return strings.Compare(orEmpty(a.Description), orEmpty(b.Description)) },
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

func orEmpty(s *string) string {
	if s == nil {
		return ""
	}
	return *s
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
