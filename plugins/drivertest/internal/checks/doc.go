// SPDX-License-Identifier: Apache-2.0

// Package checks has the checks of the conformance suite for virt drivers, and the bench on which
// each runs. Package drivertest selects them, bounds them and reports.
//
//	All ─▶ Check ──▶ Bench.Run ──▶ trial.Result
//	                  │  ▲
//	                  ▼  │ calls of the protocol
//	         the plugin's processes: one that most checks share,
//	         and others that a check starts for itself
//
// Files: checks_*.go are the checks, by what they are about, each list with its functions; bench.go
// starts processes, run.go runs a check; calls.go and instances.go call the plugin. trees.go,
// spread.go and allocations.go make up what Placement would have; reshape.go and former.go find a
// tree from which the driver reshapes; record.go keeps what the processes log, strays.go finds
// processes that outlive them.
package checks
