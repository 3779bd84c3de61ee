// SPDX-License-Identifier: Apache-2.0

// Package health says how the agent is as a set of named conditions: each has a code by which programs know it, a severity, what it means
// for guests and for scheduling, and what a person can do about it.
//
//	facts ──▶ findings (code, subject, text) ──▶ Tracker ──▶ conditions, since when
//	                                              ▲    └───▶ what appeared and what is over
//	                          definitions ────────┘
//
// All that is known of a code stands in its [Definition], and docs/operators.md has the same table. The package knows nothing of where
// findings come from, has no clock and does no I/O.
package health
