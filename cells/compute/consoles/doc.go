// SPDX-License-Identifier: Apache-2.0

// Package consoles has the calls of the compute API about the consoles of servers: the end of a
// console log, the URL of a serial console, and the page and the websocket behind that URL.
//
//	POST …/remote-consoles ─▶ token (API database) ─▶ URL
//	GET Path?token=…       ─▶ page, then websocket ═▶ stream of the cell ═▶ agent of the host
//
// [Deps.Routes] and [Deps.Actions] are the calls, and [Deps.Serve] answers what browsers send to
// [Path]. A websocket lives on when its request has ended; [Sessions] are all of them.
package consoles
