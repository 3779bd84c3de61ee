// SPDX-License-Identifier: Apache-2.0

// Package cellstorm has only tests: the whole of the compute API with agents that are real and guests that run. Each process is that of an
// operator, with its own files and sockets, and is killed, stopped and started again.
//
//	API ─┬─ cell0                          hosts are of two kinds:
//	API ─┼─ cell1 ── agent ── driver         fake      the driver in drivers/fake; a guest is a file
//	     ├─ cell2 ── agent ── driver         libvirt   a libvirtd on a made-up machine (testhost/sim); a guest is a QEMU
//	     └─ cell3 ── agent ── driver                   without a disk to start from, its processors emulated
//	Placement
//
// TestOutage boots, kills one cell, does what can be done then, and brings the cell back. TestStorm kills and stops at random, from a seed,
// while others boot, list, show, delete and restore. What both demand in the end is in picture_test.go: the allocations in Placement are
// the guests on the hosts are the living rows of the cells are the mappings. What must never be so, not even during a storm, is watched for
// all the time (watch_test.go): a guest of one server on two hosts.
//
// The storm is short with `go test`; `make storm-cells TIME=10m SEED=7 LIBVIRT=3` goes on for longer, with libvirt in so many cells. From a seed come the
// same faults in the same order, at the same times; how they meet with what owners ask for is up to the machine.
package cellstorm
