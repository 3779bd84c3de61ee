// SPDX-License-Identifier: Apache-2.0

//go:build race

package testproc

// Race is whether the race detector watches the tests, which then take three to ten times as long.
const Race = true
