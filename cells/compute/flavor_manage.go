// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"errors"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	guuid "github.com/google/uuid"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	js "github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/plugins"
)

// flavorManageRoutes are the calls that change flavors. Servers keep the flavor that they were made
// with, whatever becomes of it.
func (a *API) flavorManageRoutes() []route {
	return []route{
		{method: "POST", path: "/v2.1/flavors", body: flavorSchemas, handle: a.createFlavor, about: &aboutCreateFlavor},
		{method: "PUT", path: "/v2.1/flavors/{id}", body: once(flavorUpdate), handle: a.updateFlavor, since: vFlavorDescription, about: &aboutUpdateFlavor},
		{method: "DELETE", path: "/v2.1/flavors/{id}", handle: a.deleteFlavor, about: &aboutDeleteFlavor},
	}
}

// The policies of flavors. All may read them.
var (
	ruleFlavorCreate = Rule{"os_compute_api:os-flavor-manage:create", admins}
	ruleFlavorUpdate = Rule{"os_compute_api:os-flavor-manage:update", admins}
	ruleFlavorDelete = Rule{"os_compute_api:os-flavor-manage:delete", admins}
)

var flavorID = regexp.MustCompile(`^[a-zA-Z0-9. _-]+$`)

// flavorSchemas are the bodies of POST /flavors.
var flavorSchemas = func() schemaSteps {
	first := js.Properties{
		{Name: "name", Schema: schemaName},
		{Name: "id", Schema: js.Schema{
			js.Type("string", "number", "null"),
			js.MinLength(1),
			js.MaxLength(255),
			js.PatternFunc(
				`^(?! )[a-zA-Z0-9. _-]+(?<! )$`,
				"Letters, digits, and . _ - and spaces inside. The server chooses a UUID without it.",
				func(s string) bool { return flavorID.MatchString(s) && strings.Trim(s, " ") == s },
			),
		}},
		{Name: "ram", Schema: schemaInteger(1)},
		{Name: "vcpus", Schema: schemaInteger(1)},
		{Name: "disk", Schema: schemaInteger(0)},
		{Name: "OS-FLV-EXT-DATA:ephemeral", Schema: schemaInteger(0)},
		{Name: "swap", Schema: schemaInteger(0)},
		{Name: "rxtx_factor", Schema: js.Schema{js.Type("number", "string"), js.Pattern(`^[0-9]+(\.[0-9]+)?$`), js.ExclusiveMinimum(0), js.Maximum(3.40282e+38)}},
		{Name: "os-flavor-access:is_public", Schema: schemaBoolean},
	}
	described := first.With("description", flavorDescription)
	body := func(p js.Properties) js.Schema {
		return js.ClosedObject(js.Properties{{Name: "flavor", Schema: js.ClosedObject(p, "name", "ram", "vcpus", "disk")}}, "flavor")
	}
	return schemaSteps{{vFlavorDescription, body(described)}, {MinVersion, body(first)}}
}()

var flavorDescription = js.Schema{js.Type("string", "null"), js.MaxLength(65535), printable}

// flavorUpdate is the body of PUT /flavors/{id}.
var flavorUpdate = js.ClosedObject(js.Properties{
	{Name: "flavor", Schema: js.ClosedObject(js.Properties{{Name: "description", Schema: flavorDescription}}, "description")},
}, "flavor")

// createFlavor answers POST /flavors.
func (a *API) createFlavor(x *exchange) error {
	body, err := x.checked()
	if err != nil {
		return err
	}
	if err := x.allowOwn(ruleFlavorCreate); err != nil {
		return err
	}
	asked := memberObject(body, "flavor")
	f := apidb.Flavor{
		Flavor: cellwire.Flavor{
			Flavor: plugins.Flavor{
				Name: strings.TrimSpace(memberString(asked, "name")), VCPUs: memberInt(asked, "vcpus", 0), MemoryMB: memberInt(asked, "ram", 0),
				RootGB: memberInt(asked, "disk", 0), EphemeralGB: memberInt(asked, "OS-FLV-EXT-DATA:ephemeral", 0), SwapMB: memberInt(asked, "swap", 0),
			},
		},
		Description: memberText(asked, "description"),
		IsPublic:    memberBool(asked, "os-flavor-access:is_public", true),
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
	err = a.store.CreateFlavor(x.ctx(), f)
	if errors.Is(err, apidb.ErrExists) {
		if _, exists := a.store.Flavor(x.ctx(), f.ID); exists == nil {
			return conflict("Flavor with ID %s already exists.", f.ID)
		}
		return conflict("Flavor with name %s already exists.", f.Name)
	}
	if err != nil {
		return err
	}
	return oneFlavor(x, &f)
}

// updateFlavor answers PUT /flavors/{id}: the description is all that can be changed.
func (a *API) updateFlavor(x *exchange) error {
	body, err := x.checked()
	if err != nil {
		return err
	}
	if err := x.allowOwn(ruleFlavorUpdate); err != nil {
		return err
	}
	f, err := a.changeFlavor(x, func(f *apidb.Flavor) error {
		f.Description = memberText(memberObject(body, "flavor"), "description")
		return nil
	})
	if err != nil {
		return err
	}
	return oneFlavor(x, &f)
}

// changeFlavor changes the flavor that the path names. Of two changes at once none is lost.
func (a *API) changeFlavor(x *exchange, change func(*apidb.Flavor) error) (apidb.Flavor, error) {
	id := x.param("id")
	f, err := a.store.ChangeFlavor(x.ctx(), id, func(f *apidb.Flavor) error {
		if !f.IsPublic && !x.isAdmin() {
			return apidb.ErrNotFound
		}
		return change(f)
	})
	if errors.Is(err, apidb.ErrNotFound) {
		err = flavorNotFound(id)
	}
	return f, err
}

// deleteFlavor answers DELETE /flavors/{id}, also of one that servers have.
func (a *API) deleteFlavor(x *exchange) error {
	if err := x.allowOwn(ruleFlavorDelete); err != nil {
		return err
	}
	err := a.store.DeleteFlavor(x.ctx(), x.param("id"))
	if errors.Is(err, apidb.ErrNotFound) {
		return flavorNotFound(x.param("id"))
	}
	if err != nil {
		return err
	}
	return x.empty(http.StatusAccepted)
}
