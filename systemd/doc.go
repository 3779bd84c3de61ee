// SPDX-License-Identifier: Apache-2.0

// Package systemd implements systemd's protocols for services, and holds the unit files.
//
//	compute-agent.service            Type=notify, WatchdogSec=, LoadCredential=
//	  │ NOTIFY_SOCKET, WATCHDOG_USEC, CREDENTIALS_DIRECTORY
//	  ▼
//	Notifier   READY=1 · STATUS= · RELOADING=1 · STOPPING=1
//	           EXTEND_TIMEOUT_USEC= and WATCHDOG=1, while there is progress
//	compute-agent-placement.socket
//	  │ LISTEN_FDS, LISTEN_FDNAMES
//	  ▼
//	Listeners  sockets by name, open before Placement starts and while it restarts
//	journald
//	  ▲ log entries with fields
//	Journal    if standard error is the journal (JOURNAL_STREAM)
//
// New and Listeners remove systemd's variables from the environment, so that plugins cannot use
// them. Without systemd, everything does nothing and returns no error.
//
// The protocols: sd_notify(3), sd_watchdog_enabled(3), sd_listen_fds(3), systemd.exec(5), section
// CREDENTIALS, and systemd.io/JOURNAL_NATIVE_PROTOCOL.
package systemd
