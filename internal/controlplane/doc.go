// SPDX-License-Identifier: Apache-2.0

// Package controlplane makes, of the configuration, what the services of the control plane are made
// with.
//
//	config.Config ──▶ Placement ───▶ placement.New
//	              ├─▶ ComputeAPI ──▶ cells.NewAPI
//	              └─▶ Cell ────────▶ cells.NewCell
//
// It knows the configuration and the services, which do not know each other.
package controlplane
