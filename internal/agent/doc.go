// SPDX-License-Identifier: Apache-2.0

// Package agent puts the daemon together: the configuration becomes plugins, trackers, a Placement client, a control
// socket and a service that systemd can watch, each with an owner that starts and ends it.
//
//	Run ──┬── control socket
//	      ├── systemd: ready, status, watchdog
//	      └── for each configured driver
//	            ├── host.Plugin              its process
//	            └── resourcetracker.Tracker  its nodes ──▶ reportclient.Client ──▶ Placement
//
// Nothing here decides anything about inventory; it only connects.
package agent
