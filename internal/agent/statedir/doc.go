// SPDX-License-Identifier: Apache-2.0

// Package statedir is the agent's state directory (agent.state_dir): its locks, that of the only
// agent of a user too, which driver has which node, the directories of drivers, and the reasons why
// nodes are disabled. The meaning of the other files is that of the packages that write them:
// identity, ownership, journal.
//
// While a node has a reason, its root provider has the trait COMPUTE_STATUS_DISABLED. The file is
// disabled.json. Each source has at most one reason for each node, and one for all nodes; a source
// only removes its own.
package statedir
