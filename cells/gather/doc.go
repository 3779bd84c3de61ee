// SPDX-License-Identifier: Apache-2.0

// Package gather sends requests to many cells at once and separates those that are down: Nova's
// scatter-gather, with a timeout of its own for each cell, so that a slow cell removes only itself
// from an answer.
//
//	request ──▶ cell A ─── answer
//	       ├──▶ cell B ─── no connection, a broken answer: down at once
//	       └──▶ cell C ··· no answer: down after Timeout
//
// [Gatherer.Run] pings all cells in the background. One that has answered neither pings nor
// requests for DownTime is down: its circuit breaker opens, requests under way end as if they had
// timed out, and no others are sent until a ping is answered. So no request waits longer than
// DownTime for a cell that hangs, and none at all later. A cell that is slow answers pings, and its
// requests have Timeout. Each process pings for itself: what one cannot reach, another one may.
//
// A semaphore limits how many cells requests to several cells ask at the same time (64 for each
// processor): with too little CPU time for all at once, answers are read late and cells that are up
// time out. A request releases it when no cell has answered for a moment, so that a cell that hangs
// delays no other request. Requests to one cell do not take it.
//
// The time between the arrival of a request ([Gatherer.WithArrival]) and its requests to cells is
// deducted from their timeout if it is at most a quarter of it. So the request is answered after
// Timeout. If it is more, the request takes longer, but no cell that is slow and up times out.
//
// A rejection (*cellwire.Error, 4xx) is an answer: the cell is up. 401 and 403 are not: a cell that
// rejects the compute API's credentials is useless to it.
package gather
