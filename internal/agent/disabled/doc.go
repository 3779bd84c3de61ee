// SPDX-License-Identifier: Apache-2.0

// Package disabled keeps why nothing new shall be scheduled to this host's compute nodes: a set of reasons, each by its source,
// that outlives restarts. As long as a node has one, its root provider carries the trait COMPUTE_STATUS_DISABLED.
//
// The file is disabled.json in the agent's state directory. Each source has at most one reason for each node, and one for all
// nodes together; a source takes back only its own.
package disabled
