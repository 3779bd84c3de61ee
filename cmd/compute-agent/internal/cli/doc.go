// SPDX-License-Identifier: Apache-2.0

// Package cli is what the commands of compute-agent have in common: the configuration that a
// command is run with, the format in which it prints, its exit code, consent of the operator, and
// the service or agent that runs it instead if it has the database open or the state.
package cli
