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
// Adopt, GiveNodeOffline and the other functions that take a configuration work on the state
// directory and Placement of a host whose agent does not run.
//
// It makes no decisions about inventory. Why a host is degraded is decided in internal/health.
package agent
