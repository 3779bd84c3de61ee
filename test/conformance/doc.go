// SPDX-License-Identifier: Apache-2.0

// Package conformance has the bundled Placement answer Placement's own API cases, which are not
// part of this repository: make conformance says where they are. The runner beside them begins a
// server for each file of cases, on an empty database of the engine of -database.
package conformance
