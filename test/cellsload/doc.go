// SPDX-License-Identifier: Apache-2.0

// Package cellsload has tests that put load on the compute API over many cells, with many servers
// and clients, while one cell hangs and another one refuses connections. Every answer is compared
// with the servers in the databases, and resources that remain at the end are counted. The small
// sizes of `go test` check correctness; `make load-cells` measures.
//
// A process of its own, which is this package's test binary, serves the healthy cells, with real
// databases and the real HTTP service. The clients are another one: they keep their answers in
// files and check them when all have theirs. The compute API and the two failing cells are in the
// test's process.
package cellsload
