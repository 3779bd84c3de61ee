// SPDX-License-Identifier: Apache-2.0

// Package cellsload has tests that put load on the compute API over many cells, with many servers and clients, while one cell hangs and
// another one refuses connections. Every answer is compared with what the servers that were put there say it must be; what is left when all
// is over is counted. The small measures of go test are for what is right or wrong; `make load-cells` is for figures.
//
// The cells that are well are served by a process of their own, this package's test binary run once more, over the databases and the HTTP
// service that a real cell has. So are the clients, which keep their answers in files and look at them when all have theirs. The compute API and the two
// cells that get into trouble are in the test's process.
package cellsload
