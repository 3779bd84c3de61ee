// SPDX-License-Identifier: Apache-2.0

// Package instances makes guests on the host and ends them: it is what the driver does as a plugins.InstanceManager.
//
//	Spawn    decide ─▶ define ─▶ disks ─▶ mediated devices ─▶ start ─▶ note that it ran
//	         └ one at a time ┘   └───────── beside those of other instances ─────────┘
//	Destroy  switch off ─▶ mediated devices ─▶ directory ─▶ undefine
//
// The definition comes first and goes last. So the domain with its mark (package domain) is at every moment the record of what there may be
// of an instance: what it says that was made is made if it is missing, or removed if it is there. A process that ends anywhere leaves a
// domain, and whoever is called next goes on from that. Hardware is taken from the moment of the definition, since a decision looks
// at all domains that there are, running or not.
//
// Which domains are the agent's own, only the mark says. No other is ever changed, whatever its uuid or name.
//
// What is done is done over connections with write access: one for what libvirt answers at once, others for starts and the like, which
// take seconds or, with much memory or a broken udev, minutes. Lists are read over the driver's own connection and wait for none of these.
//
// Below the directory of the guests' disks, an instance has one of its own, named as its domain:
//
//	instance-<uuid>/disk       the root disk: a layer over its image (qcow2), a copy, or empty
//	                disk.eph0  the ephemeral disk, empty
//	                disk.swap  the swap disk, with the signature of swap space
//	                disk.seed  what cloud-init asks for: user data (NoCloud)
//	                console.log
//	                started    that it ran once
package instances
