// SPDX-License-Identifier: Apache-2.0

// Package systemd implements the agent's side of systemd's protocols, and embeds the unit files.
//
//	compute-agent.service            Type=notify, WatchdogSec=, LoadCredential=
//	  │ NOTIFY_SOCKET, WATCHDOG_USEC, CREDENTIALS_DIRECTORY
//	  ▼
//	Notifier   READY=1 · STATUS=text · RELOADING=1 · STOPPING=1 · WATCHDOG=1 as a heartbeat
//	compute-agent-placement.socket
//	  │ LISTEN_FDS, LISTEN_FDNAMES
//	  ▼
//	Listeners  sockets by name, open before Placement starts and while it restarts
//	journald
//	  ▲ an entry with fields for each log line
//	Journal    if JOURNAL_STREAM says that standard error is the journal
//
// New and Listeners remove systemd's variables from the environment, so that plugins cannot notify
// systemd. Without systemd, everything here does nothing and returns a nil error.
//
// The protocols: sd_notify(3), sd_watchdog_enabled(3), sd_listen_fds(3), systemd.exec(5), section
// CREDENTIALS, and systemd.io/JOURNAL_NATIVE_PROTOCOL.
package systemd
