// SPDX-License-Identifier: Apache-2.0

// Package listing makes one sorted page of servers of the pages of many cells.
//
//	cell A ── rows 1-100 ──┐
//	cell B ── rows 1-100 ──┼── merge ── until there are enough, or the rows of a cell run out ── its next rows ── merge …
//	cell C ── rows 1-100 ──┘
//
// The cells are asked at the same time, for a batch each, and again only those whose batch was used up. A cell that is down, in whichever batch,
// has no rows in the result, also not those that it gave before: its servers are all unknown, and none of them is there twice. So nothing is
// answered before the end.
//
// A page of a cell counts if it is what was asked for: sorted, after what was there before, no server twice. Otherwise the cell is broken: it would
// put the rows of the others into the wrong order, or be asked for ever.
package listing
