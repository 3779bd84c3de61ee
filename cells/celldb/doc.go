// SPDX-License-Identifier: Apache-2.0

// Package celldb is the database of a cell: its servers, the services of its hosts and their
// compute nodes. [Store] is what a cell uses; [Open] opens a SQLite file, or a database of servers.
//
// What becomes of a server, and whose a node is, is decided in package serverstate: a store reads
// its [serverstate.Record], runs a transition of it and writes it, in one transaction. The SQL of
// lists of servers is made in package serverquery.
//
// The tables, each below the one whose rows it is about. The steps that make them are in sql/; a
// change of the tables is a new step and a change of this list.
//
//	cell                  one row: name, epoch, revision, and the term of the compute API
//	services              a host: its agent's version and last report, disabled, forced down
//	├── host_agents       a process that reports as the host
//	├── compute_nodes     a node that the host reports, or reported: abilities, hypervisor
//	│   ├── node_claims   another host that reports the node
//	│   └── node_problems why the compute API does not use the node
//	└── instances         a server
//	    ├── instance_actions  what clients asked for it, and what came of that
//	    └── migrations        a move to another host, open or over
//	processes             on servers only: the programs that have the database open
//
// Each change of a row raises the cell's revision in the same transaction, so that a host can ask
// for what is newer than its own revision.
package celldb
