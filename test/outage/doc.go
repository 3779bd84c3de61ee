// SPDX-License-Identifier: Apache-2.0

// Package outage has only tests. They run the whole compute API as an operator does: the processes of Placement, of the compute API and of
// its cells, each with its own files and sockets, and hosts. They ask it over HTTP as clients do, and end its processes, stop them, or have
// something else answer in their place.
//
// The set of cases is that of the specification "Handling a down cell" and of what Nova does beside it: each is a subtest of TestCases, by its
// number. Bodies are compared with the files in testdata, where identifiers and times are replaced by names; run the tests with -update to
// write them anew, and read the difference.
//
// Nothing here sleeps: what takes time is waited for. Times are asserted where the time is what a case is about, against the bound that the
// configuration gives.
package outage
