// SPDX-License-Identifier: Apache-2.0

// Package hostdiscovery maps the hosts and nodes that cells have to those cells, in the API
// database: Nova's discover_hosts. [Discover] says which hosts may be.
//
//	cells: nodes of hosts ──┐                        ┌─▶ API database: hosts, nodes, enrolments
//	                        ├─▶ Discover ─▶ Report ──┤
//	API database ───────────┘                        └─▶ cells: which nodes are mapped, problems
//
// The scheduler does it periodically and when a server finds no host, the audit as a repair, and an
// operator with a command.
package hostdiscovery
