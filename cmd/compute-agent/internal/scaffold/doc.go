// SPDX-License-Identifier: Apache-2.0

// Package scaffold writes the module of a new virt driver: one that builds, passes its tests, and
// reports a machine from the first minute, for its author to change.
//
//	compute-driver-NAME/
//	├─ go.mod, go.sum         compute-agent at a version, or replaced by a checkout
//	├─ main.go                plugins.Serve
//	├─ driver/                an inventory with children, a configuration with a schema,
//	│                        a reshape, Watch and Health; all with tests
//	├─ systemd/               a drop-in for the agent's service
//	├─ examples/NAME.toml     a file for conf.d; dev.toml is for a driver not installed
//	├─ Makefile, README.md    build, test, install; what the author changes where
//	└─ .github/workflows/     the same in CI
//
// The files lie in templates/. Their requirements (requires.txt, sums.txt) are those of this very
// module at this very version, so that a new driver builds without the network wherever
// compute-agent was built; a test compares them and writes them again with -update.
package scaffold
