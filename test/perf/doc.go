// SPDX-License-Identifier: Apache-2.0

// Command perf measures the Placement service: beside OpenStack's own with the same data and the
// same requests (perf compare), beside a bare net/http server that answers with the same bytes and
// appends writes to a file (perf optimum), on the same MariaDB server as OpenStack's and on the
// other databases (perf databases), alone as the data grow (perf grow), by the refused claims of
// concurrent clients (perf contend), and how long it takes to replace OpenStack's on its database
// and to go back (perf adopt). It prints tables in Markdown; docs/performance.md shows
// some, how they were made and what they mean.
//
// The data and the requests (client.go, data.go, requests.go, reshape.go) are the nested and the
// flat data sets of Placement's own performance jobs with their queries, claims, inventory writes,
// the reads of a refresh, and reshapes that move consumers between a root and its children and
// back.
//
// It compares the CPU time that a service and its database use for an operation, over all their
// processes: on a machine with other load that changes much less than the time of an answer.
package main
