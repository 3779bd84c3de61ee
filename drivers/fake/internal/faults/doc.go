// SPDX-License-Identifier: Apache-2.0

// Package faults has what the fake driver does wrong on purpose: the catalogue of faults, how each
// happens, and the key faults of the configuration that names them.
//
//	--start=FAULT ──▶ Start                                      before the handshake
//	                     ┌──────────── Config ────────────┐
//	a call ─────────▶ Run, Before...    the driver    After... ──▶ the answer
//
// Files: config.go has the key and its schema; process.go the faults that any call can have, such
// as a crash, a hang and garbage in the log; answers.go those of responses; reshape.go those of a
// reshape; calls.go which call has its faults before the driver acts, and which after it.
package faults
