// SPDX-License-Identifier: Apache-2.0

// Package gather asks cells at the same time and tells those that are down from those that answer: Nova's scatter-gather, with a clock for
// every cell, so that a slow one takes nothing but itself out of an answer.
//
//	ask ──▶ cell A ─── answer
//	   ├──▶ cell B ─── no connection, a broken answer: down, found out at once
//	   └──▶ cell C ··· silence: down after Timeout. For FastFail nobody else waits for it; [Gatherer.Run] goes on asking, and it is up the moment it answers
//
// Requests to many cells take turns, so that 64 cells are asked at the same time for each processor: if all are made at once when there is too little CPU time for them, no answer is read
// before many are, and cells that are well are late and look down. A turn is over when all cells have answered, or none has for a moment: who waits for a
// cell that hangs is in nobody's way, and when that cell has answered or its time is over, goes before those that begin. One cell is asked without a turn.
//
// What a request waits for its turn, and what else was done since it came in ([Gatherer.Came]), comes off the time that the cells have for it, if it
// is not more than a quarter of that; as a goroutine's wait for a processor does. So it has its answer after Timeout. If it is more it does not, but no
// cell that is slow and well is missed.
//
// A refusal (*wire.Error, 4xx) is an answer: such a cell is up. Only 401 and 403 are not, because nothing can be had from a cell that does not
// let the compute API in.
package gather
