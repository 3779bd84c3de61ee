// SPDX-License-Identifier: Apache-2.0

// Package processes reads from /proc which processes exist and what they use, and reaps orphans.
// Processes that the caller cannot see (hidepid, another PID namespace) are left out everywhere.
//
// The first process of a container (PID 1) must reap processes whose parents ended before them.
// Until then they are zombies, and a process that waits for the end of one hangs: libvirt
// waits 40 s for each emulator that it probes.
//
//	SIGCHLD ─▶ has a child ended? ─▶ which (/proc/*/stat) ─▶ reap those that are not our own
//	           (waitid, WNOWAIT)
//
// The exit status of a process that this program started belongs to os/exec and [os.Process]. Such
// a process is recognized by the descriptor (pidfd) that package os holds until it is reaped or
// released. Whether pidfds can be used depends on the kernel (Linux 5.4 and later), on what the
// container forbids, and on /proc: see [CheckReaping].
package processes
