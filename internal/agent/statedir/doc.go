// SPDX-License-Identifier: Apache-2.0

// Package statedir opens and locks the agent's state directory (agent.state_dir). The package that
// writes a file defines its meaning: identity, ownership, journal, disabled.
package statedir
