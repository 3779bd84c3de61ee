// SPDX-License-Identifier: Apache-2.0

// Package clients runs clients that were written for OpenStack against the bundled services, as
// processes that serve sockets: the openstack command line (with osc-placement), its SDK, and
// gophercloud. It has tests only.
//
// Against Placement each tells a full story: providers, a tree, inventories, traits, aggregates,
// candidates, allocations, usages, deletion. Against the compute API each sees the same servers of
// two cells, first with both up and then with one of them killed.
package clients
