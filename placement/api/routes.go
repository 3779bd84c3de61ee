// SPDX-License-Identifier: Apache-2.0

package api

import (
	"net/http"
	"strings"

	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/placement/api/hostpolicy"
	"github.com/compute-agent/compute-agent/placement/wire"
)

// handler answers one request that has passed all checks of its endpoint. An error that it returns
// becomes the answer; see Explain.
type handler func(x *exchange) error

// endpoint is one method of one path.
type endpoint struct {
	method string
	// since is the feature that introduced the endpoint. Before it, the answer is 404, or absent.
	since  wire.Feature
	absent int
	// needs are the requirements on the headers of the request.
	needs need
	// needsFirst: the headers are checked before the version, which decides between 406 or 415 and
	// 404.
	needsFirst bool
	// action is what the policy must allow; a handler without one checks the policy itself.
	action Action
	// host says what the call does when a host makes it, and so whether it may.
	host   hostpolicy.Access
	handle handler
}

// need is a set of requirements on the headers of a request.
type need uint8

const (
	nothing    need = iota
	acceptJSON      // Accept must allow application/json, or else 406
	sendsJSON       // Content-Type must be application/json, or else 415
)

// route is one path and its methods. In the path, {name} stands for one segment.
type route struct {
	path      string
	endpoints []endpoint
}

// routes are all calls of the API.
var routes = []route{
	{"/{$}", []endpoint{
		{method: http.MethodGet, host: hostpolicy.ReadNames, handle: showVersions},
	}},
	{hostpolicy.ProvidersPath, []endpoint{
		{method: http.MethodGet, needs: acceptJSON, action: ListProviders, host: hostpolicy.ReadList,
			handle: listProviders},
		{method: http.MethodPost, needs: sendsJSON, action: CreateProvider, host: hostpolicy.WriteTree,
			handle: createProvider},
	}},
	{"/resource_providers/{uuid}", []endpoint{
		{method: http.MethodGet, needs: acceptJSON, action: ShowProvider, host: hostpolicy.ReadShared,
			handle: showProvider},
		{method: http.MethodDelete, action: DeleteProvider,
			host: hostpolicy.WriteTree, handle: deleteProvider},
		{method: http.MethodPut, needs: sendsJSON, action: UpdateProvider, host: hostpolicy.WriteTree,
			handle: updateProvider},
	}},
	{
		"/resource_providers/{uuid}/inventories",
		[]endpoint{
			{method: http.MethodGet, needs: acceptJSON,
				action: ListInventories, host: hostpolicy.ReadShared, handle: listInventories},
			{method: http.MethodPost, needs: sendsJSON,
				action: CreateInventory, host: hostpolicy.WriteTree, handle: createInventory},
			{method: http.MethodPut, needs: sendsJSON, action: UpdateInventory, host: hostpolicy.WriteTree,
				handle: setInventories},
			{
				method: http.MethodDelete,
				since:  wire.DeleteInventories,
				absent: http.StatusMethodNotAllowed,
				action: DeleteInventory,
				host:   hostpolicy.WriteTree,
				handle: deleteInventories,
			},
		},
	},
	{"/resource_providers/{uuid}/inventories/{class}", []endpoint{
		{method: http.MethodGet, needs: acceptJSON, action: ShowInventory, host: hostpolicy.ReadShared,
			handle: showInventory},
		{method: http.MethodPut, needs: sendsJSON, action: UpdateInventory, host: hostpolicy.WriteTree,
			handle: setInventory},
		{method: http.MethodDelete, action: DeleteInventory, host: hostpolicy.WriteTree, handle: deleteInventory},
	}},
	{"/resource_providers/{uuid}/usages", []endpoint{
		{method: http.MethodGet, needs: acceptJSON, action: ShowProviderUsages, host: hostpolicy.ReadOwn,
			handle: showProviderUsages},
	}},
	{
		"/resource_providers/{uuid}/aggregates",
		[]endpoint{
			{
				method:     http.MethodGet,
				since:      wire.ProviderAggregates,
				needs:      acceptJSON,
				needsFirst: true,
				action:     ListProviderAggregates,
				host:       hostpolicy.ReadShared,
				handle:     listAggregates,
			},
			{
				method:     http.MethodPut,
				since:      wire.ProviderAggregates,
				needs:      sendsJSON,
				needsFirst: true,
				action:     UpdateProviderAggregates,
				host:       hostpolicy.WriteTree,
				handle:     setAggregates,
			},
		},
	},
	{"/resource_providers/{uuid}/traits", []endpoint{
		{method: http.MethodGet, since: wire.Traits, needs: acceptJSON, action: ListProviderTraits,
			host: hostpolicy.ReadShared, handle: listProviderTraits},
		{method: http.MethodPut, since: wire.Traits, needs: sendsJSON, action: UpdateProviderTraits,
			host: hostpolicy.WriteTree, handle: setProviderTraits},
		{method: http.MethodDelete, since: wire.Traits, action: DeleteProviderTraits, host: hostpolicy.WriteTree,
			handle: deleteProviderTraits},
	}},
	{"/resource_providers/{uuid}/allocations", []endpoint{
		{method: http.MethodGet, needs: acceptJSON, action: ListProviderAllocations, host: hostpolicy.ReadOwn,
			handle: listProviderAllocations},
	}},
	{"/resource_classes", []endpoint{
		{method: http.MethodGet, since: wire.ResourceClasses, needs: acceptJSON, action: ListClasses,
			host: hostpolicy.ReadNames, handle: listClasses},
		{method: http.MethodPost, since: wire.ResourceClasses, needs: sendsJSON, action: CreateClass,
			host: hostpolicy.CreateNames, handle: createClass},
	}},
	{"/resource_classes/{name}", []endpoint{
		{method: http.MethodGet, since: wire.ResourceClasses, needs: acceptJSON, action: ShowClass,
			host: hostpolicy.ReadNames, handle: showClass},
		{method: http.MethodPut, since: wire.ResourceClasses, host: hostpolicy.CreateNames,
			handle: putClass},
		{method: http.MethodDelete, since: wire.ResourceClasses, action: DeleteClass,
			handle: deleteClass},
	}},
	{"/traits", []endpoint{
		{method: http.MethodGet, since: wire.Traits, needs: acceptJSON, action: ListTraits, host: hostpolicy.ReadNames,
			handle: listTraits},
	}},
	{"/traits/{name}", []endpoint{
		{method: http.MethodGet, since: wire.Traits, action: ShowTrait, host: hostpolicy.ReadNames,
			handle: showTrait},
		{method: http.MethodPut, since: wire.Traits, action: UpdateTrait, host: hostpolicy.CreateNames,
			handle: putTrait},
		{method: http.MethodDelete, since: wire.Traits,
			action: DeleteTrait, handle: deleteTrait},
	}},
	{
		"/allocations",
		[]endpoint{
			{
				method: http.MethodPost,
				since:  wire.PostAllocations,
				needs:  sendsJSON,
				action: ManageAllocations,
				host:   hostpolicy.WriteAllocations,
				handle: postAllocations,
			},
		},
	},
	{"/allocations/{consumer}", []endpoint{
		{method: http.MethodGet, needs: acceptJSON, action: ListAllocations, host: hostpolicy.ReadConsumer,
			handle: showAllocations},
		{method: http.MethodPut, needs: sendsJSON, action: UpdateAllocations, host: hostpolicy.WriteAllocations,
			handle: putAllocations},
		{method: http.MethodDelete, action: DeleteAllocations, host: hostpolicy.WriteAllocations,
			handle: deleteAllocations},
	}},
	{"/allocation_candidates", []endpoint{
		{method: http.MethodGet, since: wire.AllocationCandidates, needs: acceptJSON, action: ListCandidates,
			handle: listCandidates},
	}},
	{"/allocation_candidates/explain", []endpoint{
		{method: http.MethodGet, since: wire.AllocationCandidates, needs: acceptJSON, action: ListCandidates,
			handle: explainCandidates},
	}},
	{"/hosts/{host}/admission", []endpoint{
		{method: http.MethodGet, needs: acceptJSON,
			action: ShowAdmission, handle: showAdmission},
		{method: http.MethodPost, needs: sendsJSON, action: UpdateAdmission, handle: updateAdmission},
	}},
	{"/usages", []endpoint{
		{method: http.MethodGet, since: wire.ProjectUsages,
			needs: acceptJSON, handle: showUsages},
	}},
	{hostpolicy.ReshaperPath, []endpoint{
		{method: http.MethodPost, since: wire.ReshaperCall,
			needs: sendsJSON, action: ReshapeProviders, host: hostpolicy.WriteAllocations, handle: reshape},
	}},
}

// newRoutes makes the router.
func newRoutes() *osapi.Routes[endpoint] {
	found := osapi.NewRoutes[endpoint](false)
	for _, rt := range routes {
		for _, e := range rt.endpoints {
			found.Add(e.method, rt.path, e)
		}
	}
	return found
}

// serve runs the checks of the endpoint, in Placement's order, and calls its handler.
func (x *exchange) serve(e *endpoint, allow string) error {
	if e.needsFirst {
		if err := x.checkHeaders(e.needs); err != nil {
			return err
		}
	}
	if !x.v.Has(e.since) {
		if e.absent == http.StatusMethodNotAllowed {
			return osapi.NoMethod(e.method, withoutMethod(allow, e.method))
		}
		return osapi.NoRoute()
	}
	if !e.needsFirst {
		if err := x.checkHeaders(e.needs); err != nil {
			return err
		}
	}
	if h := x.host(); h != nil {
		if err := x.admitHost(h, e.host); err != nil {
			return err
		}
	} else if e.action != "" {
		if err := x.authorize(e.action, ""); err != nil {
			return err
		}
	}
	return e.handle(x)
}

func withoutMethod(allow, method string) string {
	var kept []string
	for name := range strings.SplitSeq(allow, ", ") {
		if name != method {
			kept = append(kept, name)
		}
	}
	return strings.Join(kept, ", ")
}

// checkHeaders returns an error unless Accept or Content-Type is what the route needs.
func (x *exchange) checkHeaders(n need) error {
	switch n {
	case acceptJSON:
		if readAccept(x.R.Header.Get("Accept")).json <= 0 {
			return osapi.Errorf(http.StatusNotAcceptable, "Only application/json is provided.")
		}
	case sendsJSON:
		sent := x.R.Header.Get("Content-Type")
		if sent == wire.MediaType {
			return nil
		}
		media, _, _ := strings.Cut(sent, ";")
		if media = strings.TrimSpace(media); !strings.EqualFold(media, wire.MediaType) {
			if media == "" {
				media = "None"
			}
			return osapi.Errorf(http.StatusUnsupportedMediaType,
				"The media type %s is not supported, use application/json.", shortened(media))
		}
	}
	return nil
}

// authorize checks the policy. project is the project of the request's target, "" for none. A
// request of a host passes: admitHost has checked it by the rules for hosts.
func (x *exchange) authorize(action Action, project string) error {
	if x.Caller.Host != nil || x.api.policy.Allows(action, &x.Caller, project) {
		return nil
	}
	f := osapi.Errorf(http.StatusForbidden, "Policy does not allow %s to be performed.", action)
	if x.api.policy.LegacyAllows(action, &x.Caller, project) {
		f.Message += " A user with the role service may do it; so may this user where the Placement server has " +
			"[policy] defaults = \"legacy\"."
		f.Hint = "give the user the role service, or set [policy] defaults = \"legacy\" in the configuration of " +
			"this server"
	}
	return f
}

// Call is one call of the API, for documentation and tests.
type Call struct {
	Method string
	// Path has {name} for a segment.
	Path string
	// Action is what the policy must allow; "" where the handler decides, or for everybody.
	Action Action
	// Hosts says what a host may do with it, for documentation; "" for nothing.
	Hosts string
}

// Calls are all calls of the API, by path.
func Calls() []Call {
	var all []Call
	for _, r := range routes {
		for _, e := range r.endpoints {
			all = append(all,
				Call{Method: e.method, Path: strings.TrimSuffix(r.path, "{$}"),
					Action: e.action, Hosts: e.host.String()})
		}
	}
	return all
}
