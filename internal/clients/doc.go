// SPDX-License-Identifier: Apache-2.0

// Package clients runs clients that were written for OpenStack's Placement against the bundled one, as a process that
// serves a socket: the openstack command line with osc-placement, and gophercloud. Each tells a full story: providers, a
// tree, inventories, traits, aggregates, candidates, allocations, usages, deletion. It has tests only.
package clients
