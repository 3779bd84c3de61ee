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
//	             POST /v1/servers/{uuid}/reset          set its state, for an administrator
//	             GET  /v1/servers/{uuid}/actions        actions and what came of them
//	             GET  /v1/servers/{uuid}/stream?purpose=P&length=N   a stream, see below
//	             GET, POST /v1/servers/{uuid}/migrations  those that are open; begin one
//	             POST /v1/migrations/{uuid}             a step of one: destination, end, confirm
//	             POST /v1/migrations/query              some, the newest first
//	             GET  /v1/migrations/due                without destination, or to give back
//	             POST /v1/servers/states                states of servers, deleted ones too
//	             POST /v1/servers/hosts/query           the hosts of servers
//	             GET  /v1/servers/unfinished            what the API must finish: see Unfinished
//	             GET  /v1/survey?project_id=P           hosts, services, usage: all a boot needs
//	                  /v1/survey?project_id=P&only=usage   without the hosts
//	             GET  /v1/services
//	             PATCH /v1/services/{uuid}              disable, enable, force down
//	             DELETE /v1/services/{uuid}             remove a host and its nodes
//	             POST /v1/services/{uuid}/rename        give a host another name
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
// Consoles and disks are not state: they go over a stream ([Stream]) of bytes in both directions.
// Each direction can end by itself, or both end with a reason. A client asks the cell for a stream;
// the answer to the agent's long poll has a [StreamOffer]; the agent opens the other end with the
// id in it, and the cell joins both:
//
//	compute API ── GET …/stream, Upgrade ─▶ cell ── answer to GET …/work ────────▶ agent
//	                                        cell ◀─ GET …/streams/{id}, Upgrade ── agent
//	compute API ◀════════ frames ═════════▶ cell ◀═══════════ frames ════════════▶ agent
//
// A new use needs a [Purpose] with its [StreamRule], and a function in package worker. Both ends of
// a stream are in the memory of one process of the cell: the one that has the agent's long poll.
// Any other process answers 503, and a client that knows several addresses asks the next one.
//
// A request may name its cell in [HeaderCell]. A cell of another name, reached under a wrong
// address, then rejects it instead of answering about servers that it does not have.
//
// Of several processes of the compute API, one at a time builds servers. It sends its term in
// [HeaderTerm]. So a cell refuses late requests of a process that another one has replaced.
//
// Changes that a client of the compute API asked for name its request in [HeaderOrigin], for the
// history of a server.
//
// A refusal is an [Error] in JSON, with its status. A client treats any other answer as that of a
// broken cell.
package cellwire
