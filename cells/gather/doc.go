// SPDX-License-Identifier: Apache-2.0

// Package gather asks cells at the same time and tells those that are down from those that answer: Nova's scatter-gather, with a clock for
// every cell, so that a slow one takes nothing but itself out of an answer.
//
//	ask ──▶ cell A ─── answer
//	   ├──▶ cell B ─── no connection, a broken answer: down, found out at once
//	   └──▶ cell C ··· no answer: down after Timeout. For FastFail its circuit breaker is open:
//	                   no request waits for it. [Gatherer.Run] asks until it answers; then it is up
//
// A semaphore limits how many cells requests to several ask at the same time (64 for each
// processor): if all are asked at once when there is too little CPU time for them, no answer is
// read before many are, and cells that are up time out. A request releases it when no cell has
// answered for a moment, so that a cell that hangs holds up no other request. One cell is asked
// without it.
//
// What passes between the arrival of a request ([Gatherer.Came]) and the asking of its cells comes
// off the time that they have for it, if it is not more than a quarter of that. So the request has
// its answer after Timeout. If it is more it does not, but no cell that is slow and up times out.
//
// A refusal (*cellwire.Error, 4xx) is an answer: such a cell is up. Only 401 and 403 are not, because nothing can be had from a cell that does not
// let the compute API in.
package gather
