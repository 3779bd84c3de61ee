// SPDX-License-Identifier: Apache-2.0

// Package cellclient is the HTTP client of one cell, in the protocol of package cellwire. The
// compute API and the agents of a cell's hosts use it.
//
// A cell is another process, perhaps of another version, perhaps stopped in the middle of an
// answer: the client trusts nothing in it. An answer counts if it is complete, JSON, of bounded
// size and about the requested object. There are two kinds of errors:
//
//	*cellwire.Error   the cell rejected the request: 404 not found, 409 conflict, 401 and 403
//	*Failure          no valid answer: no connection, timeout or a broken answer. Failure.Sent
//	                  says whether the cell may have executed the request
//
// Each call is one request. Nothing is retried, redirected or sent through a proxy; idle
// connections are reused. A client with several URLs of a cell sends a request to the next one when
// one has no valid answer, and stays there.
package cellclient
