// SPDX-License-Identifier: Apache-2.0

// Package systemd is the agent's side of the contract with systemd, and the
// unit files that are the other side.
//
//	compute-agent.service            Type=notify, WatchdogSec=, LoadCredential=
//	  │ NOTIFY_SOCKET, WATCHDOG_USEC, CREDENTIALS_DIRECTORY
//	  ▼
//	Notifier   READY=1 · STATUS=words · RELOADING=1 · STOPPING=1 · WATCHDOG=1, as long as the tracker's heart beats
//	compute-agent-placement.socket
//	  │ LISTEN_FDS, LISTEN_FDNAMES
//	  ▼
//	Listeners  sockets by name, open before the bundled Placement starts and while it restarts
//	journald
//	  ▲ an entry with fields for each line of log
//	Journal    where JOURNAL_STREAM says that standard error is the journal
//
// What systemd passes in the environment is meant for one process: New and
// Listeners take it out, so that plugins cannot speak in the agent's name.
// Without systemd everything here does nothing and says so with a nil error.
//
// The protocols are those of sd_notify(3), sd_watchdog_enabled(3),
// sd_listen_fds(3), systemd.exec(5), section CREDENTIALS, and systemd.io/JOURNAL_NATIVE_PROTOCOL.
package systemd
