// SPDX-License-Identifier: Apache-2.0

// Package host finds, trusts, starts, watches and restarts the plugin processes that virt drivers run in.
//
// A [Host] is the machinery that all plugins of an agent share; a [Plugin] is one configured driver. Its supervisor, the
// goroutine that [Plugin.Run] becomes, is the only one that starts and ends the process:
//
//	Discovered ─▶ Verified ─▶ Starting ─▶ Configured ─▶ Healthy ◀─▶ Degraded
//	    ▲            │            │            │            │           │
//	    │            ▼            ▼            ▼            ▼           ▼
//	    ├──────── Backoff ◀───────┴────────────┴────────────┴───────────┘
//	    └──────── Quarantined (too many failures)     NotInstalled, Incompatible, Disabled: until something changes
//
// A plugin is trusted with the machine but not with the agent. Whatever it does (hang, crash, write garbage, fork and
// leave), no call blocks past its deadline, nothing panics here, and no process or socket stays behind. While it is down,
// calls answer at once with [ErrUnavailable]: silence is never taken for an empty tree.
//
// Only executables that root or the agent's own user alone can change are started, and what was checked is what is
// executed, since both go by one file descriptor.
package host
