// SPDX-License-Identifier: Apache-2.0

// Package cellstorm has only tests. They run the whole compute API with real agents and running
// guests. Each process is that of an operator, with its own files and sockets, and is killed,
// stopped and started again.
//
//	API ─┬─ cell0                      hosts are of two kinds:
//	API ─┼─ cell1 ── agent ── driver     fake      the driver in drivers/fake; a guest is a file
//	     ├─ cell2 ── agent ── driver     libvirt   a libvirtd on a made-up machine
//	     └─ cell3 ┬─ agent ── driver               (test/testhost); a guest is a QEMU without a
//	Placement      └ agent ── driver                disk, its processors emulated
//
// TestOutage boots servers, kills one cell, does what is possible then, and brings the cell back.
// TestStorm kills and stops processes at random, from a seed, while clients boot, list, show,
// start, stop, reboot, migrate, evacuate, delete and restore servers; only in storms has cell3 two
// hosts. TestSharedStorm is the same with several APIs and two of the cells on one server of
// MariaDB (-database=postgresql: of PostgreSQL), which is killed and stopped as well, and the
// connections to it are cut. What all require in the end is in picture_test.go: allocations in
// Placement, guests on the hosts, living rows of the cells and mappings are the same servers, on
// the same hosts, and no migration is open; and in model_test.go: a guest runs unless its owner
// stopped it.
// What must not happen even during a storm is watched all the time (watch_test.go): a guest of one
// server on two hosts, or of one that is migrated, two that run.
//
// TestDatabasesOfACellFailOver has the database servers of one cell fail, one way after the other.
//
// A storm takes seconds, and its seed is always the same; in make nightly it takes minutes, with a
// new one. `make storm-cells TIME=10m SEED=7 LIBVIRT=3` runs a longer one, with libvirt in as many
// cells. A seed gives the same faults in the same order at the same
// times; how they interleave with the requests depends on the machine.
package cellstorm
