// SPDX-License-Identifier: Apache-2.0

// Package compute is the compute API in front of the cells: Nova's HTTP API, microversions 2.1 to
// 2.71. It keeps answering when a cell is down.
//
//	request ─▶ api: who, route, microversion ─▶ handler ─▶ policy ─▶ apidb, and all cells at once
//
// [api] is what a request and its answer are in this API, and how a handler is written. [servers],
// [tenant] and [admin] have calls, and do not know each other; [serverview] has the lists of
// servers, and what they have in common with the first. This package puts all calls together, and
// has the version documents.
//
// What exists: the version documents; servers (list, detail, show, create, update, delete, the
// actions restore, forceDelete, os-start, os-stop, reboot, rebuild, evacuate, migrate,
// confirmResize, revertResize, os-resetState, os-getConsoleOutput and os-getSerialConsole, remote
// consoles, metadata, tags, instance actions, the abort of migrations);
// services; hypervisors; flavors; limits; quota sets; host aggregates, availability zones, server
// groups, key pairs and migrations. All other paths of Nova's are not found.
//
// # Differences from Nova
//
// The answers are Nova's (compared with recordings of 26.2.2) but for these:
//
//   - A method that a path does not have is a 405 with Allow, where Nova says 404, and HEAD is
//     answered. These, and 401 and 413, have the form of all other errors; Nova leaves them to its
//     web framework.
//   - One cell that is slow, hung or broken never takes another's servers away; a list that it
//     fails in the middle has its servers once.
//   - A server of another project is not found whether its cell is up or down; Nova answers 403 for
//     one that is down.
//   - Operations on a server whose cell is down are refused with 500, as the specification of cells
//     that are down wants it, in a sentence that says so.
//   - For a member, a marker that is another project's server is not found; Nova discloses that it
//     exists, and when it was created.
//   - A marker in a cell that hangs is refused after the time that a cell has. Nova does not
//     answer.
//   - No next link follows a list that ends with a minimal record, for its marker could not be
//     found.
//   - A page is full even if a server is in a build request and in its cell; Nova's is shorter, and
//     has no next link.
//   - Minimal records are ordered: newest first, then by id. They are still before all others.
//   - power_state and launch_index are compared, where Nova searches their digits. Filters by
//     created_at, launched_at, terminated_at, progress, auto_disk_config and locked_by are refused.
//     Those by what no server here has (addresses, kernels) find nothing.
//   - Patterns are Go's: without look-around and back references. One has at most 1,024 bytes, and
//     a thousand steps when its repetitions are written out; all those of a query have 8 KiB.
//   - Flavors that are not public are for administrators alone: there are no lists of projects that
//     may use one (os-flavor-access).
//   - The adminPass of a boot is returned but not set in the guest, as with Nova's drivers without
//     password injection.
//   - A forced host (ZONE:HOST) that does not exist is detected by the scheduler: the server is in
//     ERROR in cell0.
//   - A zone whose hosts are all in cells that are down is listed as not available.
//   - A host with servers does not change its zone, as in Nova since 2024.2.
//   - A change of the metadata of an aggregate changes its updated_at for good, and one of name and
//     zone is whole: in Nova the new name stays when the zone is refused.
//   - A server whose reboot failed is active or stopped, as its guest is, and not in error.
//   - A rebuild does not look for the image, and preserve_ephemeral is refused. One that fails
//     leaves the server in error with its allocations; in Nova with a guest perhaps.
//   - A host that is named for evacuate or migrate is checked as any other, before 2.68 too, and is
//     in the cell of the server. A migration that fails is undone. A soft delete of a server that
//     moves, or waits for confirmation, is a 409.
//     A server whose host is down is evacuated whatever its task is.
//   - DELETE /servers/{id}/migrations/{migration} aborts a migration of any type that waits for a
//     host that is down, and no other. os-resetState is a 409 for a server that moves, is deleted,
//     or was never built and would be active.
//   - Lists of migrations leave out those of cells that are down. dest_host, which is an address,
//     and the numbers of flavors are null. Before 2.59 they are ordered, too: the newest first.
//   - A server cannot be renamed (409) before it is in a cell.
//   - Of a server the last 500 actions are kept, each with one event. An action that has not ended
//     when the next one begins has failed. Create is one from when the server is in its cell, and
//     one more for each other host that builds it.
//   - Quotas are of projects. Those of single users are refused, and shown as the project's.
//   - Services are the nova-compute services of hosts; conductors and schedulers are no processes
//     of their own, so that cell0 has none.
//   - What hypervisors have and use is what Placement has of their trees; without Placement it is a
//     503. Type, version, address, processors and uptime of hypervisors are not known. Before 2.53
//     the id of one is that of its service, which counts in its cell.
//   - DELETE /os-services/{id} is a 409 also while the agent of the host reports to its cell: it
//     would register again at once. The resource provider stays.
//   - Readers may not write, as with Nova's new defaults ([oslo_policy] enforce_new_defaults); with
//     its old ones all of a project may.
//   - Rules of a policy file for calls that are not here have no effect, and the log names them.
//   - Key pairs of the type x509 are imported and not made. A public key has at most 16 KiB. Names
//     are compared as bytes; Nova's depend on the collation of its database.
//   - Servers have no networks, volumes or security groups: addresses is {}, volumes_attached is
//     [].
package compute
