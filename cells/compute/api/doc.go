// SPDX-License-Identifier: Apache-2.0

// Package api is what all calls of the compute API have in common: Nova's form of a request and of
// its answer.
//
//	request ─▶ internal/osapi: id, log, panic guard, limits ─┐
//	┌────────────────────────────────────────────────────────┘
//	├─▶ Resolve: who, route, microversion, project
//	└─▶ Answer: body, parameters, policy ─▶ handler ─▶ JSON, Empty or an error
//
// It knows routes, bodies, queries, policies, microversions, links, pages and refusals, and nothing
// of what calls are about: no server, no flavor, no database and no cell. It imports only
// internal/…; packages with handlers import it, and it imports none of them.
//
// # How a handler is written
//
// A call is a route in a list that the package of its handler gives:
//
//	func (d *Deps) widgetRoutes() []api.Route {
//		return []api.Route{
//			{
//				Method: "GET", Path: "/v2.1/widgets/{id}", Query: &widgetQuery,
//				Rule: ruleWidgetsShow, Handle: d.showWidget,
//			},
//			{
//				Method: "POST", Path: "/v2.1/widgets", Since: 53, Body: widgetSchemas,
//				Rule: ruleWidgetsCreate, Handle: d.createWidget,
//				Rules: []api.Rule{ruleWidgetsLarge},
//			},
//		}
//	}
//
// Paths with a project after /v2.1 lead to the same routes. When the handler is called, the body
// fits the Body of the route, the parameters are those of its Query and no others, and its Rule
// allows the call. The handler gets the exchange, which is the request and its answer; what it may
// touch besides is what its Deps have:
//
//	func (d *Deps) showWidget(x *api.Exchange) error {
//		widget, err := d.Store.Widget(x.Context(), x.Param("id"))
//		if errors.Is(err, apidb.ErrNotFound) {
//			return osapi.NotFound("Widget %s could not be found.", x.Param("id"))
//		}
//		if err != nil {
//			// 503 for apidb.ErrUnavailable, 500 "cell is not responding" for gather.ErrDown, else
//			// 500 with the cause in the log.
//			return err
//		}
//		body := new(api.Object).Add("id", widget.ID).Add("links", x.Links("widgets", widget.ID))
//		if x.AtLeast(vTags) {
//			body.Add("tags", widget.Tags)
//		}
//		return x.JSON(http.StatusOK, new(api.Object).Add("widget", body))
//	}
//
// widgetSchemas is a table of [Fields], if what a body may have depends on the microversion.
// x.Asked is the body, and x.Params are the parameters. A rule for something of another project or
// of a user the handler asks for itself (x.Allow, x.AllowUser; x.Allows gives a bool), and Rules
// name it: the policy has the rules of all routes, so that one that no route names allows no
// client. What the reference says besides is in the tests of package compute, by method and path:
// the answers with their schemas, the errors. A test fails when a route has no such entry, when
// docs/api-compute.md or docs/openapi/compute.json is stale (go test ./cells/compute -run
// TestReferenceIsCurrent -update writes them), and when an exchange of any test does not fit.
//
// x.JSON also takes any value that encoding/json can write; x.Empty answers 202 or 204. Headers of
// the answer (Location) are set in x.Header before. Errors to be shown are made by Forbidden,
// Conflict and package osapi: they become {"itemNotFound": {"code": 404, "message": …}} with the
// name that Nova has for the status. A handler that panics is answered with 500, and the log has
// the stack.
package api
