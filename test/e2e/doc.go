// SPDX-License-Identifier: Apache-2.0

// Package e2e tests the binaries as an operator runs them: real processes, signals, sockets and
// servers. It has tests only.
//
// The files client_*_test.go run clients that were written for OpenStack against the bundled
// services: the openstack command line (with osc-placement), its SDK, and gophercloud. Against
// Placement each tells a full story: providers, a tree, inventories, traits, aggregates,
// candidates, allocations, usages, deletion. Against the compute API each sees the same servers of
// two cells, first with both up and then with one of them killed.
package e2e
