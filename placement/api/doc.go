// SPDX-License-Identifier: Apache-2.0

// Package api is the HTTP side of Placement: it turns requests into reads of a snapshot and
// transactions of the ledger, and their results into the answers that clients of OpenStack
// Placement know, at every microversion.
//
//	request ─▶ id, log, panic guard, limits ─▶ CORS ─▶ Authenticator ─▶ microversion
//	          ─▶ route and method ─▶ in this version? ─▶ Accept, Content-Type ─▶ Policy
//	          ─▶ handler ─▶ ledger
//
// The routes are one table (routes.go): for each path and method, the feature that introduced it,
// its requirements on the request, its policy, and its handler. The order of the checks is
// Placement's, so that a request which is wrong in two ways gets the same status.
//
// The tests write the reference (docs/api-placement.md) and the OpenAPI document from the same
// tables: routes, parameters (which the queries are read with) and verdicts on errors. What the
// documents say beside that, such as schemas of bodies, is in reference_calls_test.go and
// schemas_test.go. Every exchange of the tests is compared with the document.
//
// Handlers are thin. Reads take one snapshot and append their JSON to a pooled buffer; writes parse
// the body first and do everything else in one transaction of the ledger, which can run more than
// once. Errors of the ledger are mapped to a status and an error code in one place (errors.go).
//
// # Differences from Placement
//
// The answers are the same as Placement's, with these exceptions:
//
//   - The sentences in errors, except those that clients search for. Errors are JSON unless the
//     client prefers HTML; Placement sends HTML also to clients that prefer neither. A 401 has the
//     same form as all errors.
//   - Vary, and Allow with each 405, are always there.
//   - Some requests that Placement answers with 500 are a 400: a ratio of NaN, half a surrogate
//     pair, a query of GET /usages that is not in UTF-8, an inventory of an impossible class that
//     is not an object. A requested amount of more than 64 bits is one that no provider has.
//   - PUT /resource_providers/{uuid} refuses an empty name, as POST does.
//   - Of a duplicate key in an object of a body, the last value counts, as in Placement, but the
//     first must be valid too.
//   - Allocations that are refused leave nothing behind. Placement keeps the record of a new
//     consumer in some cases, and then requires a generation for it that clients cannot read.
//   - name=startswith: in GET /traits takes each character for itself, where Placement takes _ and
//     % for wildcards.
//   - Media types are compared without regard to case and parameters.
//   - If GET /allocation_candidates has several limits, the first one must be a number of at least
//     1, too. Placement checks only the last one: it answers 500 to some values of the first, and
//     cuts off the end of the list for a negative one.
//   - Candidates that Placement loses or gets wrong are right: a provider below another that shares
//     with other trees (a 500 there); groups that ask for the same class while group_policy is not
//     none (the amounts of one candidate end up in others there); a group without a suffix that
//     sharing providers meet alone (for one of the trees only, there).
//   - Last-Modified is also there when a provider has no inventories, and when one with a parent is
//     renamed.
//   - On MariaDB, uuids and names of providers and consumers are case-sensitive, as on other
//     engines; in Placement they are not. Ids of projects, users and aggregates that differ only in
//     case are equal on MariaDB in both; ids that differ in accents are equal in Placement only.
//   - Names of providers that differ only in spaces at the end are equal. In Placement they are on
//     MariaDB and MySQL, but not on PostgreSQL and SQLite.
//   - Without its database a server answers reads from memory for a while, if it is configured to
//     (placement.Config.StaleReads). Such answers have the header Placement-Stale-Seconds.
//   - A request with the header Compute-Agent-Process, of an agent, is answered with that header:
//     whether another agent reports as the same host (agentruns.Watch).
//   - GET /allocation_candidates gives 100,000 candidates or 128 MiB at most, of a search that ends
//     after some seconds of work; each answer that is cut short by it is logged.
//
// # Extensions
//
// GET /allocation_candidates can do a little more than in Placement for clients that ask for it,
// from microversion 1.39 on, with the names of what they want in the header Placement-Extensions:
// root_member_of and isolate are parameters, group_policy makes the parameter of that name
// optional, and resourceless has groups without resources work as they were specified. Names that
// the server does not know are left out, and the header of the same name in the answer, also in
// that of an error, lists those that it does know: a client can tell before it relies on one.
// Without the header, or below 1.39, all is as in Placement.
// docs/placement-extensions.md describes them for clients.
//
// GET /allocation_candidates/explain is a call of its own, from 1.10 on and without the header: it
// says in JSON why the same query finds no candidates, or few (candidates.Explanation).
package api
