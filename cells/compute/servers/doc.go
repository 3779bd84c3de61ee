// SPDX-License-Identifier: Apache-2.0

// Package servers has the calls of the compute API that make, show, change and end single servers:
// create, show, update, delete and the actions, metadata and tags, what was done to a server, and
// its migrations.
//
//	POST /servers        ─▶ Deps: Tenant (flavor, group), Hosts (zones), Scheduler.Create
//	GET /servers/{id}    ─▶ serverview: mapping, cell or build request, view
//	POST …/action, PUT … ─▶ serverview: mapping ─▶ Gatherer (the cell), or Scheduler
//
// [Deps.Routes] and [Deps.Actions] are the calls. Lists of servers are in serverlist, and consoles
// in consoles.
package servers
