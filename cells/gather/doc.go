// SPDX-License-Identifier: Apache-2.0

// Package gather asks cells at the same time and tells those that are down from those that answer: Nova's scatter-gather, with a clock for
// every cell, so that a slow one takes nothing but itself out of an answer.
//
//	ask ──▶ cell A ─── answer
//	   ├──▶ cell B ─── no connection, a broken answer: down, found out at once
//	   └──▶ cell C ··· silence: down after Timeout. For FastFail nobody else waits for it; [Gatherer.Run] goes on asking, and it is up the moment it answers
//
// A refusal (*wire.Error, 4xx) is an answer: such a cell is up. Only 401 and 403 are not, because nothing can be had from a cell that does not
// let the compute API in.
package gather
