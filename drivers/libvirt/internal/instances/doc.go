// SPDX-License-Identifier: Apache-2.0

// Package instances creates and deletes guests on the host: it implements the driver's
// plugins.InstanceManager.
//
//	Spawn    decide ─▶ define ─▶ disks ─▶ mediated devices ─▶ start ─▶ note that it ran
//	         └ one at a time ┘   └───────── beside those of other instances ─────────┘
//	Destroy  switch off ─▶ mediated devices ─▶ directory ─▶ undefine
//
// Restore defines a domain that is missing over the disks in its directory, and makes no disk.
//
// The domain is defined first and undefined last. So the domain with its mark (package domain) is
// always the record of everything that an instance may have: the next call creates what is missing,
// or removes what exists. A process that is killed at any point leaves a domain from which the next
// call continues. Hardware is in use from the definition on, since a decision considers all
// domains, running or not.
//
// Only the mark identifies the agent's own domains. No other is ever changed, whatever its uuid or
// name.
//
// What is done is done over connections with write access: one for what libvirt answers at once,
// others for starts and the like, which take seconds or, with much memory or a broken udev,
// minutes. Lists are read over the driver's own connection and wait for none of these.
//
// A domain's dedicated CPUs are switched on before it starts, if their power is managed, and off
// when no running domain is bound to them ([CPUPower]).
//
// Below the directory of the guests' disks, an instance has one of its own, named as its domain:
//
//	instance-<uuid>/disk       the root disk: a layer over its image (qcow2), a copy, or empty
//	                disk.eph0  the ephemeral disk, empty
//	                disk.swap  the swap disk, with the signature of swap space
//	                disk.seed  what cloud-init asks for: user data, public key (NoCloud)
//	                console.log
//	                started    that it ran once
package instances
