// SPDX-License-Identifier: Apache-2.0

// Package cellwire is the protocol that a cell speaks: JSON over HTTP, one definition for the cell, for the compute API that asks it, and
// for the agents of its hosts. It is this project's own; what is Nova's is only the compute API in front of it.
//
// A cell is one process with one database. Two kinds of clients come to it, and each proves who it is (by a token, or by the name in a
// client certificate):
//
//	compute API  GET  /v1/cell                          who are you, and how are you
//	             POST /v1/servers/query                 a page of servers, sorted
//	             GET  /v1/servers/{uuid}                one server
//	             PUT  /v1/servers/{uuid}                insert, hidden until released
//	             POST /v1/servers/{uuid}/release        it is placed here: show it, and let its host begin
//	             POST /v1/servers/{uuid}/discard        it was placed elsewhere: forget it, if it was never released
//	             POST /v1/servers/{uuid}/delete         delete, softly or for good
//	             POST /v1/servers/{uuid}/restore        take back a soft delete
//	             POST /v1/servers/{uuid}/freed          its allocations are gone
//	             POST /v1/servers/states                what became of these servers, deleted ones among them
//	             GET  /v1/servers/unfinished            what the compute API has to finish: see Unfinished
//	             GET  /v1/survey?project_id=P           hosts and their services, and what a project uses: all that a boot asks
//	                  /v1/survey?project_id=P&only=usage   without the hosts
//	             GET  /v1/services
//	             PATCH /v1/services/{uuid}              disable, enable, force down
//	             DELETE /v1/services/{uuid}             forget a host that is gone, and its nodes
//	             GET  /v1/compute-nodes?unmapped=true
//	             POST /v1/compute-nodes/mapped
//	agents       PUT  /v1/hosts/{host}                  register, and show life
//	             GET  /v1/hosts/{host}/work?after=R&epoch=E&wait=S   what is to be so on this host: a long poll
//	             POST /v1/hosts/{host}/reports          what is so
//
// An agent is told what shall be so and not what to do, so nothing is lost when either side restarts: every change of a row raises the
// cell's revision, and an agent asks for what is newer than what it knows. A host sees and changes its own servers only.
//
// A request may name the cell that it is for in [HeaderCell]. Under a wrong address another cell would answer about servers that it does not know,
// or has for another's; it refuses instead.
//
// Errors are an [Error] in JSON with the status; a client that gets anything else takes the cell for broken.
package cellwire
