// SPDX-License-Identifier: Apache-2.0

// Package journal records every reshape on disk: the state before, the request, and the outcome. It
// is a write-ahead log: the entry is safe on disk before the request is sent to Placement's
// reshaper. So after a crash or a lost answer the agent can compare instead of guessing, and an
// operator can undo a reshape.
//
//	Begin ──▶ 000007-ROOT.open.json ──▶ POST /reshaper ──▶ End ──▶ 000007-ROOT.json
//	                  │
//	                  └── still there at the next start: [Journal.Unresolved], compare,
//	                      [Journal.Resolve]
//
// An entry has the body of the request as it is sent, and separately the state before it. Files of
// version 1, which have both in one value, are read too.
//
// Each entry is one JSON file below reshapes/ in the state directory, mode 0600. A file is written
// under another name, synced, renamed into place, and the directory is synced. So a file is
// complete or does not exist, and one that cannot be read was damaged by something else. The name
// of a file has its number, its node, and whether it is unresolved, so that these are known even
// then.
package journal
