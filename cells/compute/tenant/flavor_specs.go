// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"fmt"
	"maps"
	"net/http"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/cells/compute/api"
	"github.com/compute-agent/compute-agent/internal/extraspecs"
	js "github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/internal/osapi"
)

// extraSpecRoutes are the calls about extra specs of flavors: resources:, trait:, group_policy and
// whatever else the scheduler reads of them.
func (d *Deps) extraSpecRoutes() []api.Route {
	return []api.Route{
		{Method: "GET", Path: "/v2.1/flavors/{id}/os-extra_specs", Rule: ruleFlavorSpecsIndex,
			Handle: d.listExtraSpecs},
		{Method: "POST", Path: "/v2.1/flavors/{id}/os-extra_specs", Body: api.Always(newExtraSpecs),
			Rule: ruleFlavorSpecsCreate, Handle: d.addExtraSpecs},
		{Method: "GET", Path: "/v2.1/flavors/{id}/os-extra_specs/{key}", Rule: ruleFlavorSpecsShow,
			Handle: d.showExtraSpec},
		{Method: "PUT", Path: "/v2.1/flavors/{id}/os-extra_specs/{key}", Body: api.Always(oneExtraSpec),
			Rule: ruleFlavorSpecsUpdate, Handle: d.setExtraSpec},
		{Method: "DELETE", Path: "/v2.1/flavors/{id}/os-extra_specs/{key}", Rule: ruleFlavorSpecsDelete,
			Handle: d.deleteExtraSpec},
	}
}

// The policies of extra specs.
var (
	ruleFlavorSpecsIndex  = api.Rule{Name: "os_compute_api:os-flavor-extra-specs:index", Default: api.Readers}
	ruleFlavorSpecsShow   = api.Rule{Name: "os_compute_api:os-flavor-extra-specs:show", Default: api.Readers}
	ruleFlavorSpecsCreate = api.Rule{Name: "os_compute_api:os-flavor-extra-specs:create", Default: api.Admins}
	ruleFlavorSpecsUpdate = api.Rule{Name: "os_compute_api:os-flavor-extra-specs:update", Default: api.Admins}
	ruleFlavorSpecsDelete = api.Rule{Name: "os_compute_api:os-flavor-extra-specs:delete", Default: api.Admins}
)

// extraSpecs are strings or numbers by name; numbers are kept as strings.
var (
	extraSpecs = js.Schema{js.Type("object"),
		js.PatternProperties(api.MetadataKeys, js.Schema{js.Type("string", "number"), js.MaxLength(255)})}
	newExtraSpecs = js.ClosedObject(js.Properties{{Name: "extra_specs", Schema: extraSpecs}}, "extra_specs")
	oneExtraSpec  = append(extraSpecs[:len(extraSpecs):len(extraSpecs)], js.MinProperties(1), js.MaxProperties(1))
)

func noExtraSpec(x *api.Exchange) error {
	return osapi.NotFound("Flavor %s has no extra specs with key %s.", x.Param("id"), osapi.Shortened(x.Param("key")))
}

// listExtraSpecs answers GET /flavors/{id}/os-extra_specs.
func (d *Deps) listExtraSpecs(x *api.Exchange) error {
	f, err := d.flavorOfPath(x)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, new(api.Object).Add("extra_specs", f.ExtraSpecs))
}

// showExtraSpec answers GET /flavors/{id}/os-extra_specs/{key}.
func (d *Deps) showExtraSpec(x *api.Exchange) error {
	f, err := d.flavorOfPath(x)
	if err != nil {
		return err
	}
	value, has := f.ExtraSpecs[x.Param("key")]
	if !has {
		return noExtraSpec(x)
	}
	return x.JSON(http.StatusOK, new(api.Object).Add(x.Param("key"), value))
}

// addExtraSpecs answers POST /flavors/{id}/os-extra_specs: those that are there stay, or get
// another value.
func (d *Deps) addExtraSpecs(x *api.Exchange) error {
	specs, err := d.mergeExtraSpecs(x, api.MemberObject(x.Asked, "extra_specs"))
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, new(api.Object).Add("extra_specs", specs))
}

// setExtraSpec answers PUT /flavors/{id}/os-extra_specs/{key}.
func (d *Deps) setExtraSpec(x *api.Exchange) error {
	if _, has := x.Asked.Get(x.Param("key")); !has {
		return osapi.BadRequest("Request body and URI mismatch")
	}
	specs, err := d.mergeExtraSpecs(x, x.Asked)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusOK, specs)
}

// mergeExtraSpecs gives the flavor of the path more extra specs, and answers with those that were
// sent, as they were sent. Those that no server would have are refused here, and not only when a
// server is asked for; so does Nova from 2.86 on with those that it does not know.
func (d *Deps) mergeExtraSpecs(x *api.Exchange, given *js.Object) (*api.Object, error) {
	sent, more := new(api.Object), make(map[string]string, len(given.Names()))
	for _, name := range given.Names() {
		value, _ := given.Get(name)
		more[name] = js.PythonStr(value)
		if number, is := value.(js.Number); is {
			if len(more[name]) > 255 {
				return nil, osapi.BadRequest("extra_specs value has %d characters, more than 255.", len(more[name]))
			}
			sent.AddRaw(name, string(number))
			continue
		}
		sent.Add(name, more[name])
	}
	if err := extraspecs.Check(more); err != nil {
		return nil, osapi.BadRequest("%s", err)
	}
	changed, err := d.changeFlavor(x, func(f *apidb.Flavor) error {
		specs := maps.Clone(f.ExtraSpecs)
		if specs == nil {
			specs = map[string]string{}
		}
		maps.Copy(specs, more)
		f.ExtraSpecs = specs
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, name := range d.unreadSpecs(more) {
		x.Header().Add("Warning", fmt.Sprintf(
			"299 - \"The compute API does not read the extra spec %s, and chooses no host by it.\"", name))
		logUnread(x, changed.Name, name, "An administrator set an extra spec")
	}
	return sent, nil
}

// unreadSpecs are the extra specs that nothing of the compute API reads.
func (d *Deps) unreadSpecs(specs map[string]string) []string {
	return extraspecs.Unread(specs, d.MemberPrefixes)
}

// LogUnread logs that a server was requested by a flavor with extra specs that nothing of the
// compute API reads, as often as the limiter lets it.
func (d *Deps) LogUnread(x *api.Exchange, f *cellwire.Flavor) {
	for _, name := range d.unreadSpecs(f.ExtraSpecs) {
		if d.Unread.Allow(f.Name + "\x00" + name) {
			logUnread(x, f.Name, name, "A server was requested by a flavor with an extra spec")
		}
	}
}

// logUnread logs what was done with an extra spec that nothing of the compute API reads: who set it
// may expect that hosts are chosen by it.
func logUnread(x *api.Exchange, flavor, name, what string) {
	x.Service.Logger.Warn().Str("request_id", x.ID).Str("flavor", flavor).Str("extra_spec", name).
		Msg(what + " that the compute API does not read: hosts are not chosen by it, and it is only given to the " +
			"driver. Correct or unset it if no driver reads it. If it names host aggregates, set [scheduler] " +
			"required_member_prefix and default_forbidden_member_prefix.")
}

// deleteExtraSpec answers DELETE /flavors/{id}/os-extra_specs/{key}.
func (d *Deps) deleteExtraSpec(x *api.Exchange) error {
	_, err := d.changeFlavor(x, func(f *apidb.Flavor) error {
		if _, has := f.ExtraSpecs[x.Param("key")]; !has {
			return noExtraSpec(x)
		}
		specs := maps.Clone(f.ExtraSpecs)
		delete(specs, x.Param("key"))
		f.ExtraSpecs = specs
		return nil
	})
	if err != nil {
		return err
	}
	return x.Empty(http.StatusOK)
}
