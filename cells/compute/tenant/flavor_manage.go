// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"errors"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	guuid "github.com/google/uuid"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/compute/api"
	js "github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/plugins"
)

// flavorManageRoutes are the calls that change flavors. Servers keep the flavor that they were made
// with, whatever becomes of it.
func (d *Deps) flavorManageRoutes() []api.Route {
	return []api.Route{
		{Method: "POST", Path: "/v2.1/flavors", Body: flavorSchemas, Rule: ruleFlavorCreate,
			Handle: d.createFlavor, Rules: []api.Rule{ruleFlavorSpecsIndex}},
		{Method: "PUT", Path: "/v2.1/flavors/{id}", Body: api.Always(flavorUpdate), Rule: ruleFlavorUpdate,
			Handle: d.updateFlavor, Since: vFlavorDescription,
			Rules: []api.Rule{ruleFlavorSpecsIndex}},
		{Method: "DELETE", Path: "/v2.1/flavors/{id}",
			Rule: ruleFlavorDelete, Handle: d.deleteFlavor},
	}
}

// The policies of flavors. All may read them.
var (
	ruleFlavorCreate = api.Rule{Name: "os_compute_api:os-flavor-manage:create", Default: api.Admins}
	ruleFlavorUpdate = api.Rule{Name: "os_compute_api:os-flavor-manage:update", Default: api.Admins}
	ruleFlavorDelete = api.Rule{Name: "os_compute_api:os-flavor-manage:delete", Default: api.Admins}
)

var flavorID = regexp.MustCompile(`^[a-zA-Z0-9. _-]+$`)

// flavorSchemas are the bodies of POST /flavors.
var flavorSchemas = api.Fields{
	{Name: "name", Schema: api.SchemaName},
	{Name: "id", Schema: js.Schema{
		js.Type("string", "number", "null"),
		js.MinLength(1),
		js.MaxLength(255),
		js.PatternFunc(`^(?! )[a-zA-Z0-9. _-]+(?<! )$`,
			"Letters, digits, and . _ - and spaces inside. The server chooses a UUID without it.",
			func(s string) bool { return flavorID.MatchString(s) && strings.Trim(s, " ") == s }),
	}},
	{Name: "ram", Schema: api.SchemaInteger(1)},
	{Name: "vcpus", Schema: api.SchemaInteger(1)},
	{Name: "disk", Schema: api.SchemaInteger(0)},
	{Name: "OS-FLV-EXT-DATA:ephemeral", Schema: api.SchemaInteger(0)},
	{Name: "swap", Schema: api.SchemaInteger(0)},
	{Name: "rxtx_factor", Schema: js.Schema{js.Type("number", "string"), js.Pattern(`^[0-9]+(\.[0-9]+)?$`),
		js.ExclusiveMinimum(0), js.Maximum(3.40282e+38)}},
	{Name: "os-flavor-access:is_public", Schema: api.SchemaBoolean},
	{Name: "description", Since: vFlavorDescription, Schema: flavorDescription},
}.Steps(func(_ api.Version, members js.Properties) js.Schema {
	return js.ClosedObject(
		js.Properties{{Name: "flavor", Schema: js.ClosedObject(members, "name", "ram", "vcpus", "disk")}}, "flavor")
})

var flavorDescription = js.Schema{js.Type("string", "null"), js.MaxLength(65535), api.Printable}

// flavorUpdate is the body of PUT /flavors/{id}.
var flavorUpdate = js.ClosedObject(js.Properties{
	{Name: "flavor", Schema: js.ClosedObject(js.Properties{{Name: "description", Schema: flavorDescription}},
		"description")},
}, "flavor")

// createFlavor answers POST /flavors.
func (d *Deps) createFlavor(x *api.Exchange) error {
	asked := api.MemberObject(x.Asked, "flavor")
	f := apidb.Flavor{
		Flavor: cellwire.Flavor{
			Flavor: plugins.Flavor{
				Name: strings.TrimSpace(api.MemberString(asked, "name")), VCPUs: api.MemberInt(asked, "vcpus", 0),
				MemoryMB:    api.MemberInt(asked, "ram", 0),
				RootGB:      api.MemberInt(asked, "disk", 0),
				EphemeralGB: api.MemberInt(asked, "OS-FLV-EXT-DATA:ephemeral", 0),
				SwapMB:      api.MemberInt(asked, "swap", 0),
			},
		},
		Description: api.MemberText(asked, "description"),
		IsPublic:    api.MemberBool(asked, "os-flavor-access:is_public", true),
		RxTxFactor:  1,
	}
	if id, _ := asked.Get("id"); id != nil {
		f.ID = js.PythonStr(id)
	} else {
		f.ID = guuid.NewString()
	}
	if factor, has := asked.Get("rxtx_factor"); has {
		f.RxTxFactor, _ = strconv.ParseFloat(js.PythonStr(factor), 64) // the schema lets numbers through only
	}
	err := d.Store.CreateFlavor(x.Context(), f)
	if errors.Is(err, apidb.ErrExists) {
		if _, exists := d.Store.Flavor(x.Context(), f.ID); exists == nil {
			return api.Conflict("Flavor with ID %s already exists.", f.ID)
		}
		return api.Conflict("Flavor with name %s already exists.", f.Name)
	}
	if err != nil {
		return err
	}
	return oneFlavor(x, &f)
}

// updateFlavor answers PUT /flavors/{id}: the description is all that can be changed.
func (d *Deps) updateFlavor(x *api.Exchange) error {
	f, err := d.changeFlavor(x, func(f *apidb.Flavor) error {
		f.Description = api.MemberText(api.MemberObject(x.Asked, "flavor"), "description")
		return nil
	})
	if err != nil {
		return err
	}
	return oneFlavor(x, &f)
}

// changeFlavor changes the flavor that the path names. Of two changes at once none is lost.
func (d *Deps) changeFlavor(x *api.Exchange, change func(*apidb.Flavor) error) (apidb.Flavor, error) {
	id := x.Param("id")
	f, err := d.Store.ChangeFlavor(x.Context(), id, func(f *apidb.Flavor) error {
		if !f.IsPublic && !x.IsAdmin() {
			return apidb.ErrNotFound
		}
		return change(f)
	})
	return f, api.RefuseIf(err, apidb.ErrNotFound, flavorNotFound(id))
}

// deleteFlavor answers DELETE /flavors/{id}, also of one that servers have.
func (d *Deps) deleteFlavor(x *api.Exchange) error {
	err := d.Store.DeleteFlavor(x.Context(), x.Param("id"))
	if err != nil {
		return api.RefuseIf(err, apidb.ErrNotFound, flavorNotFound(x.Param("id")))
	}
	return x.Empty(http.StatusAccepted)
}
