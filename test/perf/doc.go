// SPDX-License-Identifier: Apache-2.0

// Command perf measures the Placement service: beside OpenStack's own with the same data and the same requests (perf
// compare), alone as the data grow (perf grow), and by the claims of concurrent clients that are refused (perf contend). It
// prints tables in Markdown; docs/performance.md shows some, with how they were made and what they mean.
//
// What is compared is the CPU time that a service and its database use for an operation, by all their processes: on a
// machine that does other things as well it changes much less than how long an answer takes.
package main
