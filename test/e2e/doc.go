// SPDX-License-Identifier: Apache-2.0

// Package e2e tests the binaries as an operator runs them: real processes, signals, sockets and
// servers. It has tests only.
package e2e
