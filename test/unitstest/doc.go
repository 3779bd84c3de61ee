// SPDX-License-Identifier: Apache-2.0

// Package unitstest tests the units in a Debian 12 whose PID 1 is systemd: `make test-systemd`.
//
//	debootstrap ─▶ root in the cache ─▶ copy ─▶ make install DESTDIR=copy
//	                                              │
//	test ── nsenter ──▶ systemctl, curl, virsh ──▶ systemd-nspawn -b: systemd, libvirtd,
//	                                                  QEMU, our units
//
// The machine that runs the test needs root, debootstrap, systemd-nspawn and, for the first run,
// the network; it needs no systemd of its own. Without the flag -systemd the tests are skipped.
package unitstest
