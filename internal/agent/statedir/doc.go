// SPDX-License-Identifier: Apache-2.0

// Package statedir opens what the agent keeps of its host on disk, below agent.state_dir, and makes one process its owner.
// What each file means belongs to the package that writes it: identity, ownership, journal, disabled.
package statedir
