// SPDX-License-Identifier: Apache-2.0

// Package pluginhost starts, monitors and restarts the plugin processes of virt drivers.
//
// A [Host] is what all plugins of an agent share; a [Plugin] is one configured driver. Only its
// supervisor, the goroutine of [Plugin.Run], starts and stops the process:
//
//	Discovered ─▶ Verified ─▶ Starting ─▶ Configured ─▶ Healthy ◀─▶ Degraded
//	    ▲            │            │            │            │           │
//	    │            ▼            ▼            ▼            ▼           ▼
//	    ├──────── Backoff ◀───────┴────────────┴────────────┴───────────┘
//	    └──────── Quarantined (too many failures)
//
//	NotInstalled, Incompatible, Disabled: until something changes
//
// A plugin is trusted with the machine, but its failures must not affect the agent. If it hangs,
// crashes, writes garbage or leaves its process group, no call blocks past its deadline, the agent
// does not panic, and no process or socket is left. While it is down, calls fail at once with
// [driverclient.ErrUnavailable]: a missing response is never taken for an empty tree.
//
// Only executables that no user but root and the agent's own can change are started. The file is
// checked and executed through one file descriptor.
//
// Its parts know neither it nor each other:
//
//	launch         which files are drivers, and is one trusted; what a process may do
//	driverclient   the calls of a process: deadlines, checks of every response, errors
//
// Package trial starts a driver without a supervisor.
package pluginhost
