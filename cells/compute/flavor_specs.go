// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"fmt"
	"maps"
	"net/http"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/internal/extraspecs"
	js "github.com/compute-agent/compute-agent/internal/jsonkit"
)

// extraSpecRoutes are the calls about extra specs of flavors: resources:, trait:, group_policy and
// whatever else the scheduler reads of them.
func (a *API) extraSpecRoutes() []route {
	return []route{
		{method: "GET", path: "/v2.1/flavors/{id}/os-extra_specs", handle: a.listExtraSpecs, about: &aboutListExtraSpecs},
		{method: "POST", path: "/v2.1/flavors/{id}/os-extra_specs", body: once(newExtraSpecs), handle: a.addExtraSpecs, about: &aboutAddExtraSpecs},
		{method: "GET", path: "/v2.1/flavors/{id}/os-extra_specs/{key}", handle: a.showExtraSpec, about: &aboutShowExtraSpec},
		{method: "PUT", path: "/v2.1/flavors/{id}/os-extra_specs/{key}", body: once(oneExtraSpec), handle: a.setExtraSpec, about: &aboutSetExtraSpec},
		{method: "DELETE", path: "/v2.1/flavors/{id}/os-extra_specs/{key}", handle: a.deleteExtraSpec, about: &aboutDeleteExtraSpec},
	}
}

// The policies of extra specs.
var (
	ruleFlavorSpecsIndex  = Rule{"os_compute_api:os-flavor-extra-specs:index", readers}
	ruleFlavorSpecsShow   = Rule{"os_compute_api:os-flavor-extra-specs:show", readers}
	ruleFlavorSpecsCreate = Rule{"os_compute_api:os-flavor-extra-specs:create", admins}
	ruleFlavorSpecsUpdate = Rule{"os_compute_api:os-flavor-extra-specs:update", admins}
	ruleFlavorSpecsDelete = Rule{"os_compute_api:os-flavor-extra-specs:delete", admins}
)

// extraSpecs are strings or numbers by name; numbers are kept as strings.
var (
	extraSpecs    = js.Schema{js.Type("object"), js.PatternProperties(metadataKeys, js.Schema{js.Type("string", "number"), js.MaxLength(255)})}
	newExtraSpecs = js.ClosedObject(js.Properties{{Name: "extra_specs", Schema: extraSpecs}}, "extra_specs")
	oneExtraSpec  = append(extraSpecs[:len(extraSpecs):len(extraSpecs)], js.MinProperties(1), js.MaxProperties(1))
)

func noExtraSpec(x *exchange) error {
	return notFound("Flavor %s has no extra specs with key %s.", x.param("id"), shortened(x.param("key")))
}

// listExtraSpecs answers GET /flavors/{id}/os-extra_specs.
func (a *API) listExtraSpecs(x *exchange) error {
	if err := x.allowOwn(ruleFlavorSpecsIndex); err != nil {
		return err
	}
	f, err := a.flavorOfPath(x)
	if err != nil {
		return err
	}
	return x.json(http.StatusOK, new(object).add("extra_specs", f.ExtraSpecs))
}

// showExtraSpec answers GET /flavors/{id}/os-extra_specs/{key}.
func (a *API) showExtraSpec(x *exchange) error {
	if err := x.allowOwn(ruleFlavorSpecsShow); err != nil {
		return err
	}
	f, err := a.flavorOfPath(x)
	if err != nil {
		return err
	}
	value, has := f.ExtraSpecs[x.param("key")]
	if !has {
		return noExtraSpec(x)
	}
	return x.json(http.StatusOK, new(object).add(x.param("key"), value))
}

// addExtraSpecs answers POST /flavors/{id}/os-extra_specs: those that are there stay, or get
// another value.
func (a *API) addExtraSpecs(x *exchange) error {
	body, err := x.checked()
	if err != nil {
		return err
	}
	if err := x.allowOwn(ruleFlavorSpecsCreate); err != nil {
		return err
	}
	specs, err := a.mergeExtraSpecs(x, memberObject(body, "extra_specs"))
	if err != nil {
		return err
	}
	return x.json(http.StatusOK, new(object).add("extra_specs", specs))
}

// setExtraSpec answers PUT /flavors/{id}/os-extra_specs/{key}.
func (a *API) setExtraSpec(x *exchange) error {
	body, err := x.checked()
	if err != nil {
		return err
	}
	if err := x.allowOwn(ruleFlavorSpecsUpdate); err != nil {
		return err
	}
	if _, has := body.Get(x.param("key")); !has {
		return badRequest("Request body and URI mismatch")
	}
	specs, err := a.mergeExtraSpecs(x, body)
	if err != nil {
		return err
	}
	return x.json(http.StatusOK, specs)
}

// mergeExtraSpecs gives the flavor of the path more extra specs, and answers with those that were
// sent, as they were sent. Those that no server would have are refused here, and not only when a
// server is asked for; so does Nova from 2.86 on with those that it does not know.
func (a *API) mergeExtraSpecs(x *exchange, given *js.Object) (*object, error) {
	sent, more := new(object), make(map[string]string, len(given.Names()))
	for _, name := range given.Names() {
		value, _ := given.Get(name)
		more[name] = js.PythonStr(value)
		if number, is := value.(js.Number); is {
			if len(more[name]) > 255 {
				return nil, badRequest("extra_specs value has %d characters, more than 255.", len(more[name]))
			}
			sent.addRaw(name, string(number))
			continue
		}
		sent.add(name, more[name])
	}
	if err := extraspecs.Check(more); err != nil {
		return nil, badRequest("%s", err)
	}
	changed, err := a.changeFlavor(x, func(f *apidb.Flavor) error {
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
	for _, name := range a.unreadSpecs(more) {
		x.header().Add("Warning", fmt.Sprintf("299 - \"The compute API does not read the extra spec %s, and chooses no host by it.\"", name))
		a.logUnread(x, changed.Name, name, "An administrator set an extra spec")
	}
	return sent, nil
}

// unreadSpecs are the extra specs that nothing of the compute API reads.
func (a *API) unreadSpecs(specs map[string]string) []string {
	return extraspecs.Unread(specs, a.options.MemberPrefixes)
}

// logUnread logs what was done with an extra spec that nothing of the compute API reads: who set it
// may expect that hosts are chosen by it.
func (a *API) logUnread(x *exchange, flavor, name, what string) {
	a.service.Logger.Warn().Str("request_id", x.ID).Str("flavor", flavor).Str("extra_spec", name).
		Msg(what + " that the compute API does not read: hosts are not chosen by it, and it is only given to the driver. " +
			"Correct or unset it if no driver reads it. If it names host aggregates, set [scheduler] required_member_prefix and default_forbidden_member_prefix.")
}

// deleteExtraSpec answers DELETE /flavors/{id}/os-extra_specs/{key}.
func (a *API) deleteExtraSpec(x *exchange) error {
	if err := x.allowOwn(ruleFlavorSpecsDelete); err != nil {
		return err
	}
	_, err := a.changeFlavor(x, func(f *apidb.Flavor) error {
		if _, has := f.ExtraSpecs[x.param("key")]; !has {
			return noExtraSpec(x)
		}
		specs := maps.Clone(f.ExtraSpecs)
		delete(specs, x.param("key"))
		f.ExtraSpecs = specs
		return nil
	})
	if err != nil {
		return err
	}
	return x.empty(http.StatusOK)
}
