// SPDX-License-Identifier: Apache-2.0

// Package ledger is Placement's state machine: resource providers and their
// trees, inventories, traits and aggregates, consumers and their allocations,
// the generations that guard them, and the rules by which they change. It
// follows OpenStack Placement 8.0.0, with its later fix for providers that
// are over-committed (LP#2104040). It does no I/O of its own.
//
// A Snapshot is made of the containers of package pmap: the next one shares everything
// that did not change, so the cost of a write does not depend on the size of
// the cloud, and readers never wait.
//
// Tx.Touched is what a transaction changed, before and after: for rules about
// it, which run last in the transaction, and for the audit log.
//
// The rules live in Tx, one file for each part of Placement; the indexes in
// draft; Store, with its row types, is the interface to package store.
// The standard names are those of os-resource-classes and os-traits, kept as
// data files.
package ledger
