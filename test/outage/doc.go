// SPDX-License-Identifier: Apache-2.0

// Package outage has only tests. They run the compute API as an operator does: the processes of
// Placement, of the compute API and of its cells, each with its own files and sockets, and hosts.
// They send requests as clients do, and kill, stop or replace the processes.
//
// The cases are those of the specification "Handling a down cell" and of Nova's own behaviour
// beside it: each is a subtest of TestCases, by its number. Bodies are compared with the files in
// testdata, in which names stand for identifiers and times; -update rewrites the files.
//
// The tests do not sleep; they wait for conditions. A case about a time asserts the bound that the
// configuration gives.
package outage
