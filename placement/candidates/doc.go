// SPDX-License-Identifier: Apache-2.0

// Package candidates answers GET /allocation_candidates: which sets of resource providers could
// serve a request for resources, in the whole forest of one ledger.Snapshot. It is pure: it reads
// the snapshot and nothing else.
//
// A request is made of groups. The unsuffixed group may be served by several providers of a tree,
// and by sharing providers; each suffixed (granular) group by exactly one provider. For the search,
// a group becomes slots, one for each class of the unsuffixed group and one for each suffixed
// group, and every tree becomes an anchor: a tree with the sharing providers of its aggregates.
//
//	query string ─ ReadURLQuery ─▶ Request, at a microversion and with extensions
//	Request ─ resolve ─▶ query: names become numbers and sets of providers
//	query   ─ visit ───▶ the anchors that can matter, those of the rarest condition
//	anchor  ─ fill ────▶ for each slot the providers that could serve it, with their free capacity
//	slots   ─ search ──▶ one provider for each slot, subtracting capacity as it goes ─▶ Candidate
//
// The search backtracks, fewest options first, and returns each Candidate as soon as it is
// complete: ten candidates cost ten. After its first dead end it looks ahead, by matching the
// remaining slots to the remaining capacity, so that a host that can serve 20 of 21 devices is
// rejected at once instead of after 21! attempts.
//
// Successive searches begin at different trees: see [Rotation].
//
// The rules are those of OpenStack Placement 8.0.0, including the surprising ones: a suffixed group
// without resources ignores its in_tree, and finds nothing when all that it asks for are traits or
// aggregates to avoid. [Request.Resourceless] has the rules that were specified instead.
package candidates
