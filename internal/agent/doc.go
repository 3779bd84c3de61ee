// SPDX-License-Identifier: Apache-2.0

// Package agent is the daemon: from the configuration it creates plugins, trackers, a Placement
// client, a control socket and a systemd service, and starts and stops them.
//
//	Run ──┬── control socket
//	      ├── systemd: ready, status, watchdog
//	      └── for each configured driver
//	            ├── pluginhost.Plugin        its process
//	            └── resourcetracker.Tracker  its nodes ──▶ reportclient.Client ──▶ Placement
//
// [DryRun], [AuditOffline] and the other functions that take a configuration are for commands on a
// host whose agent does not run: package commands calls them.
//
// It makes no decisions about inventory. Why a host is degraded is decided in internal/health.
package agent
