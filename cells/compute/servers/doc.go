// SPDX-License-Identifier: Apache-2.0

// Package servers has the calls of the compute API that make, show, change and end single servers:
// create, show, update, delete and the actions, metadata and tags, what was done to a server, its
// migrations and its consoles: the end of a console log, the URL of a serial console, and the page
// and the websocket behind that URL.
//
//	POST /servers        ─▶ Deps: Tenant (flavor, group), Hosts (zones), Scheduler.Create
//	GET /servers/{id}    ─▶ serverview: mapping, cell or build request, view
//	POST …/action, PUT … ─▶ serverview: mapping ─▶ Gatherer (the cell), or Scheduler
//
//	POST …/remote-consoles     ─▶ token (API database) ─▶ URL
//	GET ConsolePath?token=…    ─▶ page, then websocket ═▶ stream of the cell ═▶ agent of the host
//
// [Deps.Routes] and [Deps.Actions] are the calls, and [Deps.ServeConsole] answers what browsers
// send to [ConsolePath]. A websocket lives on when its request has ended; [ConsoleSessions] are all
// of them. Lists of servers are in serverview.
package servers
