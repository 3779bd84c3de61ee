// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"maps"
	"net/http"
	"slices"

	"github.com/compute-agent/compute-agent/cells/compute/api"
	js "github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/test/openapi/apidoc"
)

// about is what the reference says about a call, besides what its route says.
type about struct {
	summary string
	notes   []string
	// when has when a rule has to allow something, by the name of the rule; always without it.
	when    map[string]string
	answers []apidoc.Answer
	// failures are the errors besides those that every call can have.
	failures []apidoc.Failure
}

// failure is an error of a call; its code is the name that bodies have for the status.
func failure(status int, reason string) apidoc.Failure {
	return apidoc.Failure{Status: status, Code: api.FaultName(status), Reason: reason}
}

// Errors that calls of several groups have.
var (
	noMarker  = failure(http.StatusBadRequest, "The marker does not exist.")
	takenName = failure(http.StatusConflict, "The name is taken.")
)

// ok is an answer of 200.
func ok(text string, body apidoc.Body) []apidoc.Answer {
	return []apidoc.Answer{{Status: http.StatusOK, Text: text, Body: body}}
}

// done is an answer without a body.
func done(status int, text string) []apidoc.Answer {
	return []apidoc.Answer{{Status: status, Text: text}}
}

// What the reference says about the version documents.
var (
	aboutListVersions = about{summary: "Shows the versions of the API",
		answers: ok("The versions.", always(versionsAnswer)),
		notes:   []string{"Paths that begin with no version are answered with 300 and the versions to choose from."}}
	aboutShowVersion = about{summary: "Shows the microversions of the API",
		answers: ok("The version.", always(versionAnswer)),
		notes:   []string{"The path is good without the last slash, too."}}
)

// abouts has all calls, by method and path, and actions also by their names.
var abouts = map[string]*about{
	"GET /v2.1/os-aggregates":                              &aboutListAggregates,
	"POST /v2.1/os-aggregates":                             &aboutCreateAggregate,
	"GET /v2.1/os-aggregates/{id}":                         &aboutShowAggregate,
	"PUT /v2.1/os-aggregates/{id}":                         &aboutUpdateAggregate,
	"DELETE /v2.1/os-aggregates/{id}":                      &aboutDeleteAggregate,
	"POST /v2.1/os-aggregates/{id}/action add_host":        &aboutAddHost,
	"POST /v2.1/os-aggregates/{id}/action remove_host":     &aboutRemoveHost,
	"POST /v2.1/os-aggregates/{id}/action set_metadata":    &aboutSetAggregateMetadata,
	"GET /v2.1/os-availability-zone":                       &aboutListZones,
	"GET /v2.1/os-availability-zone/detail":                &aboutListZonesDetail,
	"GET /v2.1/os-hypervisors":                             &aboutListHypervisors,
	"GET /v2.1/os-hypervisors/detail":                      &aboutListHypervisorsDetail,
	"GET /v2.1/os-hypervisors/statistics":                  &aboutHypervisorStatistics,
	"GET /v2.1/os-hypervisors/{id}":                        &aboutShowHypervisor,
	"GET /v2.1/os-hypervisors/{id}/uptime":                 &aboutHypervisorUptime,
	"GET /v2.1/os-hypervisors/{id}/search":                 &aboutSearchHypervisors,
	"GET /v2.1/os-hypervisors/{id}/servers":                &aboutServersOfHypervisors,
	"GET /v2.1/os-migrations":                              &aboutListMigrations,
	"GET /v2.1/os-services":                                &aboutListServices,
	"PUT /v2.1/os-services/{id}":                           &aboutUpdateService,
	"DELETE /v2.1/os-services/{id}":                        &aboutDeleteService,
	"POST /v2.1/servers/{id}/remote-consoles":              &aboutCreateRemoteConsole,
	"GET /v2.1/servers/{id}":                               &aboutShowServer,
	"POST /v2.1/servers":                                   &aboutCreateServers,
	"DELETE /v2.1/servers/{id}":                            &aboutDeleteServer,
	"PUT /v2.1/servers/{id}":                               &aboutUpdateServer,
	"POST /v2.1/servers/{id}/action restore":               &aboutRestore,
	"POST /v2.1/servers/{id}/action forceDelete":           &aboutForceDelete,
	"POST /v2.1/servers/{id}/action os-start":              &aboutStart,
	"POST /v2.1/servers/{id}/action os-stop":               &aboutStop,
	"POST /v2.1/servers/{id}/action reboot":                &aboutReboot,
	"POST /v2.1/servers/{id}/action rebuild":               &aboutRebuild,
	"POST /v2.1/servers/{id}/action evacuate":              &aboutEvacuate,
	"POST /v2.1/servers/{id}/action migrate":               &aboutMigrate,
	"POST /v2.1/servers/{id}/action confirmResize":         &aboutConfirm,
	"POST /v2.1/servers/{id}/action revertResize":          &aboutRevert,
	"POST /v2.1/servers/{id}/action os-resetState":         &aboutReset,
	"POST /v2.1/servers/{id}/action os-getConsoleOutput":   &aboutConsoleOutput,
	"POST /v2.1/servers/{id}/action os-getSerialConsole":   &aboutSerialConsole,
	"POST /v2.1/servers/{id}/action os-getVNCConsole":      &aboutVNCConsole,
	"POST /v2.1/servers/{id}/action os-getSPICEConsole":    &aboutSPICEConsole,
	"GET /v2.1/servers/{id}/os-instance-actions":           &aboutListInstanceActions,
	"GET /v2.1/servers/{id}/os-instance-actions/{request}": &aboutShowInstanceAction,
	"GET /v2.1/servers/{id}/metadata":                      &aboutListMetadata,
	"POST /v2.1/servers/{id}/metadata":                     &aboutAddMetadata,
	"PUT /v2.1/servers/{id}/metadata":                      &aboutReplaceMetadata,
	"GET /v2.1/servers/{id}/metadata/{key}":                &aboutShowMetadata,
	"PUT /v2.1/servers/{id}/metadata/{key}":                &aboutSetMetadata,
	"DELETE /v2.1/servers/{id}/metadata/{key}":             &aboutDeleteMetadata,
	"GET /v2.1/servers/{id}/migrations":                    &aboutListLiveMigrations,
	"GET /v2.1/servers/{id}/migrations/{migration}":        &aboutShowLiveMigration,
	"DELETE /v2.1/servers/{id}/migrations/{migration}":     &aboutAbortMigration,
	"GET /v2.1/servers/{id}/tags":                          &aboutListTags,
	"PUT /v2.1/servers/{id}/tags":                          &aboutReplaceTags,
	"DELETE /v2.1/servers/{id}/tags":                       &aboutDeleteTags,
	"GET /v2.1/servers/{id}/tags/{tag}":                    &aboutShowTag,
	"PUT /v2.1/servers/{id}/tags/{tag}":                    &aboutAddTag,
	"DELETE /v2.1/servers/{id}/tags/{tag}":                 &aboutDeleteTag,
	"GET /v2.1/servers":                                    &aboutListBrief,
	"GET /v2.1/servers/detail":                             &aboutListDetail,
	"POST /v2.1/flavors":                                   &aboutCreateFlavor,
	"PUT /v2.1/flavors/{id}":                               &aboutUpdateFlavor,
	"DELETE /v2.1/flavors/{id}":                            &aboutDeleteFlavor,
	"GET /v2.1/flavors/{id}/os-extra_specs":                &aboutListExtraSpecs,
	"POST /v2.1/flavors/{id}/os-extra_specs":               &aboutAddExtraSpecs,
	"GET /v2.1/flavors/{id}/os-extra_specs/{key}":          &aboutShowExtraSpec,
	"PUT /v2.1/flavors/{id}/os-extra_specs/{key}":          &aboutSetExtraSpec,
	"DELETE /v2.1/flavors/{id}/os-extra_specs/{key}":       &aboutDeleteExtraSpec,
	"GET /v2.1/flavors":                                    &aboutListFlavors,
	"GET /v2.1/flavors/detail":                             &aboutListFlavorsDetail,
	"GET /v2.1/flavors/{id}":                               &aboutShowFlavor,
	"GET /v2.1/os-keypairs":                                &aboutListKeyPairs,
	"POST /v2.1/os-keypairs":                               &aboutCreateKeyPair,
	"GET /v2.1/os-keypairs/{id}":                           &aboutShowKeyPair,
	"DELETE /v2.1/os-keypairs/{id}":                        &aboutDeleteKeyPair,
	"GET /v2.1/limits":                                     &aboutShowLimits,
	"GET /v2.1/os-quota-sets/{id}":                         &aboutShowQuotas,
	"GET /v2.1/os-quota-sets/{id}/detail":                  &aboutShowQuotasDetail,
	"GET /v2.1/os-quota-sets/{id}/defaults":                &aboutShowQuotaDefaults,
	"PUT /v2.1/os-quota-sets/{id}":                         &aboutUpdateQuotas,
	"DELETE /v2.1/os-quota-sets/{id}":                      &aboutDeleteQuotas,
	"GET /v2.1/os-server-groups":                           &aboutListServerGroups,
	"POST /v2.1/os-server-groups":                          &aboutCreateServerGroup,
	"GET /v2.1/os-server-groups/{id}":                      &aboutShowServerGroup,
	"DELETE /v2.1/os-server-groups/{id}":                   &aboutDeleteServerGroup,
	"GET /":                                                &aboutListVersions,
	"GET /v2.1/":                                           &aboutShowVersion,
}

// callsOf are a route, or its actions, for the reference; none for one of which it says nothing.
func callsOf(r *api.Route) (all []apidoc.Call) {
	if what := abouts[r.Method+" "+r.Path]; what != nil {
		all = append(all, routeCall(r, what))
	}
	for _, name := range slices.Sorted(maps.Keys(r.Actions)) {
		if what := abouts[r.Method+" "+r.Path+" "+name]; what != nil {
			all = append(all, actionCall(r, name, what))
		}
	}
	return all
}

func routeCall(r *api.Route, what *about) apidoc.Call {
	c := what.call(r.Rule, r.Rules)
	c.Method, c.Path = r.Method, r.Path
	c.Versions = apidoc.Versions{Since: int(r.Since), Until: int(r.Until)}
	c.Open, c.Unversioned = r.Open, r.Unversioned
	c.Ignores = &apidoc.Versions{}
	if r.Body != nil {
		c.Body = byVersion(r.Body.At)
	}
	if r.Query == nil {
		return c
	}
	for i := range r.Query.All {
		c.Query = append(c.Query, parameter(&r.Query.All[i]))
	}
	if r.Query.Closed > 0 {
		c.Ignores.Until = int(r.Query.Closed) - 1
	}
	return c
}

func actionCall(r *api.Route, name string, what *about) apidoc.Call {
	action := r.Actions[name]
	c := what.call(action.Rule, action.Rules)
	c.Method, c.Path, c.Action = r.Method, r.Path, name
	c.Until = int(action.Until)
	c.Body = byVersion(func(v api.Version) js.Schema {
		var argument js.Schema
		if action.Schemas != nil {
			argument = action.Schemas.At(v)
		}
		if argument == nil {
			argument = described(nil, "Not looked at; null as a rule.")
		}
		return in(name, argument)
	})
	return c
}

// call is the call with its policies: the rule of its route, if it has one, and those that the
// handler asks for.
func (a *about) call(rule api.Rule, asked []api.Rule) apidoc.Call {
	c := apidoc.Call{Summary: a.summary, Notes: a.notes, Answers: a.answers, Failures: a.failures}
	for _, one := range append([]api.Rule{rule}, asked...) {
		if one == (api.Rule{}) {
			continue
		}
		text := "by default " + defaultRoles(one)
		if when := a.when[one.Name]; when != "" {
			text = when + "; " + text
		}
		c.Policies = append(c.Policies, apidoc.Policy{Rule: one.Name, Text: text})
	}
	return c
}

// defaultRoles are those that pass a rule by default, in words.
func defaultRoles(rule api.Rule) string {
	switch rule.Default {
	case api.Admins, "rule:admin_api":
		return "administrators"
	case api.Members:
		return "members of the project and administrators"
	case api.Readers:
		return "readers and members of the project and administrators"
	case api.Managers:
		return "managers of the project and administrators"
	case api.AnyUser:
		return "everybody with a token"
	case api.SameUser:
		return "the user to whom they belong and administrators"
	default:
		panic("compute: the reference has no words for the policy " + rule.Default)
	}
}

// parameter is the parameter for the reference.
func parameter(p *api.Parameter) apidoc.Parameter {
	d := apidoc.Parameter{Name: p.Name, Text: p.Text,
		Versions: apidoc.Versions{Since: int(p.Since), Until: int(p.Until)}, Schema: p.Schema}
	if p.Repeated {
		d.Repeated = max(int(p.Since), int(api.MinVersion))
	}
	if d.Schema != nil {
		return d
	}
	d.Schema = api.SchemaText
	switch p.Kind {
	case api.Pattern:
		d.Schema = described(js.Schema{js.Type("string"), js.MinLength(1)}, "A regular expression.")
	case api.DateTime:
		d.Schema = described(api.SchemaText, "A time in ISO 8601.")
	case api.Number:
		d.Schema = js.Schema{js.Type("string"), js.MinLength(1), js.Pattern("^[0-9]*$")}
	case api.Choice:
		var all []any
		for _, value := range p.Choices {
			all = append(all, value)
		}
		d.Schema = js.Schema{js.Type("string"), js.Enum(all...)}
	}
	return d
}
