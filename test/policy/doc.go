// SPDX-License-Identifier: Apache-2.0

// Package policy holds the rules of the repository that a machine can check: who may import whom, what no binary may
// depend on, and what every file and package must have. It has tests only.
package policy
