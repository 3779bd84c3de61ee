// SPDX-License-Identifier: Apache-2.0

// Package api is the HTTP side of Placement: it turns requests into reads of a snapshot and transactions of the ledger,
// and their results into the answers that clients of OpenStack Placement know, at every microversion from 1.0 to 1.39.
//
//	request ─▶ id, log, panic guard, limits ─▶ CORS ─▶ who (Authenticator) ─▶ microversion ─▶ route and method
//	          ─▶ version has it? Accept, Content-Type ─▶ may they (Policy)? ─▶ handler ─▶ ledger
//
// The routes are one table (routes.go): for each path and method, the feature that brought it, what it needs of the
// request, the policy that guards it, and its handler. The order of the checks is Placement's, so that a request which is
// wrong in two ways gets the same status.
//
// Handlers are thin. Reads take one snapshot and append their JSON to a pooled buffer; writes parse the body first and do
// everything else in one transaction of the ledger, which may run more than once. What the ledger refuses is mapped to a
// status and an error code in one place (errors.go).
package api
