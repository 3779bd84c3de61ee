// SPDX-License-Identifier: Apache-2.0

// Package reaper does what is the duty of the first process in a container (PID 1): it reaps processes whose parents have ended before them.
// Until then they are zombies, and who waits for the end of one waits in vain: libvirt does so for 40 s for each emulator that it asks
// what it can do.
//
//	SIGCHLD ─▶ has a child ended? ─▶ which (/proc/*/stat) ─▶ those that are not ours are reaped
//	           (waitid, WNOWAIT)
//
// How a process of ours has ended, os/exec and [os.Process] want to know, so it is left to them. What is ours is known by the descriptor (pidfd)
// that the os package has of each process from its birth until it is reaped or released. Whether there are such descriptors depends
// on the kernel (Linux 5.4 and later), on what the container forbids, and on /proc: [Check] tells.
package reaper
