// SPDX-License-Identifier: Apache-2.0

// Package cellclient asks one cell, in the protocol of package wire. The compute API and the agents of a cell's hosts use it.
//
// A cell is another process, perhaps of another version, perhaps stopped in the middle of an answer: nothing it says is taken for granted.
// An answer counts if it is whole, JSON, of bounded size and about what was asked. Then there are two kinds of errors, and a caller decides
// by them:
//
//	*cellwire.Error   the cell refused: it works, and what was asked is not so (404), not now (409) or not for you (401, 403)
//	*Failure      there is no answer that counts: nobody there, too slow, or broken. Failure.Sent says whether the cell may have done it
//
// Every call is one request. Nothing is repeated, redirected, or sent through a proxy; idle connections are kept and used again.
package cellclient
