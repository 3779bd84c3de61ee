// SPDX-License-Identifier: Apache-2.0

// Package journal remembers every reshape on disk: what was there before, what was asked for, and
// what became of it. It is a write-ahead log: before a request to Placement's reshaper leaves, its
// entry is safe, so that after a crash or a lost reply the agent compares instead of guessing, and
// an operator can take a reshape back.
//
//	Begin ──▶ 000007-ROOT.open.json ──▶ POST /reshaper ──▶ End ──▶ 000007-ROOT.json
//	                  │
//	                  └── still there at the next start: [Journal.Unresolved], compare,
//	                      [Journal.Resolve]
//
// An entry has the body of the request as it is sent, and beside it what was there before. Files of
// version 1, which have both in one, are read too.
//
// Each entry is one JSON file below reshapes/ in the state directory, mode 0600. A file is written
// beside, synced, renamed into place, and the directory synced; so a file is whole or not there,
// and one that cannot be read was damaged from outside. That it is unresolved, and of which node,
// its name says, which outlives its content.
package journal
