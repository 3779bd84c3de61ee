// SPDX-License-Identifier: Apache-2.0

// Package cellwire is the protocol of a cell: JSON over HTTP, one definition for the cell, for the
// compute API and for the agents of the cell's hosts. The protocol is this project's own; only the
// compute API speaks Nova's.
//
// A cell is one process with one database. It has two kinds of clients, each authenticated by a
// token or by the names in a client certificate:
//
//	compute API  GET  /v1/cell                          name, epoch, revision, version
//	             POST /v1/servers/query                 a page of servers, sorted
//	             GET  /v1/servers/{uuid}                one server
//	             PUT  /v1/servers/{uuid}                insert, hidden until released
//	             PATCH /v1/servers/{uuid}               name, description, metadata, tags
//	             POST /v1/servers/{uuid}/release        show the server and let its host start
//	             POST /v1/servers/{uuid}/discard        erase a server that was never released
//	             POST /v1/servers/{uuid}/delete         delete, soft or permanent
//	             POST /v1/servers/{uuid}/restore        undo a soft delete
//	             POST /v1/servers/{uuid}/freed          its allocations are removed
//	             POST /v1/servers/{uuid}/power          start, stop, reboot
//	             POST /v1/servers/{uuid}/rebuild        make its guest again from an image
//	             GET  /v1/servers/{uuid}/actions        actions and what came of them
//	             GET  /v1/servers/{uuid}/stream?purpose=P&length=N   a stream, see below
//	             GET, POST /v1/servers/{uuid}/migrations  those that are open; begin one
//	             POST /v1/migrations/{uuid}             a step of one: destination, end, confirm
//	             POST /v1/migrations/query              some, the newest first
//	             GET  /v1/migrations/due                without destination, or to give back
//	             POST /v1/servers/states                states of servers, deleted ones too
//	             GET  /v1/servers/unfinished            what the API must finish: see Unfinished
//	             GET  /v1/discovery?project_id=P        hosts, services, usage: all a boot needs
//	                  /v1/discovery?project_id=P&only=usage   without the hosts
//	             GET  /v1/services
//	             PATCH /v1/services/{uuid}              disable, enable, force down
//	             DELETE /v1/services/{uuid}             remove a host and its nodes
//	             GET  /v1/compute-nodes?unmapped=true&servers=true
//	             POST /v1/compute-nodes/mapped
//	             POST /v1/compute-nodes/state           which are not used, or free
//	agents       PUT  /v1/hosts/{host}                  register, heartbeat
//	             GET  /v1/hosts/{host}/work?after=R&epoch=E&wait=S   desired state: a long poll
//	             POST /v1/hosts/{host}/reports          actual state
//	             GET  /v1/hosts/{host}/nodes/{node}     which other host reports a node
//	             GET  /v1/hosts/{host}/streams/{id}     the agent's end of a stream
//	             GET  /v1/hosts/{host}/arrivals/{uuid}  the same, to the source of a migration
//
// An agent receives desired state and not commands, so that a restart of either side loses nothing:
// each change of a row raises the cell's revision, and an agent asks for what is newer than its own
// revision. A host reads and changes its own servers only.
//
// What is no state goes over a stream ([Stream]): bytes in both directions, of which each can end
// for itself, or both with a reason. One end asks for it, the answer to the agent's long poll has a
// [StreamOffer], the agent opens the other end with its id, and the cell joins both:
//
//	compute API ── GET …/stream, Upgrade ─▶ cell ── answer to GET …/work ────────▶ agent
//	                                        cell ◀─ GET …/streams/{id}, Upgrade ── agent
//	compute API ◀════════ frames ═════════▶ cell ◀═══════════ frames ════════════▶ agent
//
// A new use is a [Purpose] with its [StreamRule], and a function of package worker. Both ends are
// in the memory of one process of the cell: the one that the agent asks for work. Another one
// answers 503, and a client that knows several addresses asks the next.
//
// A request may name its cell in [HeaderCell]. A cell of another name, reached under a wrong
// address, then rejects it instead of answering about servers that it does not have.
//
// Of several compute APIs one at a time builds servers. It sends its term in [HeaderTerm], so that
// a cell refuses what one that was replaced sent before, or sends after it was stopped for a while.
//
// Changes that a client of the compute API asked for name its request in [HeaderOrigin], for the
// history of a server.
//
// Errors are an [Error] in JSON with the status; a client treats any other answer as a broken cell.
package cellwire
