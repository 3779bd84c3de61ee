// SPDX-License-Identifier: Apache-2.0

// Package disabled stores the reasons why compute nodes of this host are disabled. While a node has
// a reason, its root provider has the trait COMPUTE_STATUS_DISABLED.
//
// The file is disabled.json in the agent's state directory. Each source has at most one reason for
// each node, and one for all nodes; a source only removes its own.
package disabled
