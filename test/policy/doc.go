// SPDX-License-Identifier: Apache-2.0

// Package policy checks the rules of the repository: which package may import which, what no
// binary may depend on, which words the project uses, and what every file and package must have.
// It contains only tests.
package policy
