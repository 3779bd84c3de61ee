// SPDX-License-Identifier: Apache-2.0

// Package workload is the data and the requests that Placement services are measured with: the
// nested and the flat data sets of Placement's own performance jobs with their queries, claims,
// inventory writes, the reads of a refresh, and reshapes that move consumers between a root and its
// children and back.
package workload
