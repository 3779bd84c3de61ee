// SPDX-License-Identifier: Apache-2.0

// Package serve runs the services of the control plane as processes: [Placement], [ComputeAPI]
// and [Cell].
//
//	configuration ─▶ internal/controlplane ─▶ what a service is made with
//	  deny list, audit log, tracing, database, socket ─▶ served until the context ends
//
// Each one limits its memory, opens what it needs in an order of its own, notifies systemd and
// feeds its watchdog, and closes everything when it returns. A standalone process has
// internal/standalone instead, which runs all of them with an agent.
package serve
