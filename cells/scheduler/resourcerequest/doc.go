// SPDX-License-Identifier: Apache-2.0

// Package resourcerequest is what a flavor asks Placement for: Nova's ResourceRequest. It has no
// I/O, no clock and no logger.
//
//	flavor ─▶ New ─▶ Request ─▶ Stages ─▶ one or two requests, then others if no host was found
//	                                         │ Query
//	                                         ▼
//	                          GET /allocation_candidates ─▶ Answer ─▶ Candidates ─▶ []Candidate
//
// Resources and traits are in request groups, by their suffix. The group without a suffix has what
// the flavor itself asks for, and others what its extra specs with that suffix name.
//
// Hosts with NUMA cells as resource providers and hosts without are asked in different ways: see
// [Request.Stages] and docs/decisions/0019. Of some requests, Placement gives candidates that are
// not as the request has them, because its API cannot say so; [Request.Candidates] leaves them out.
//
// A request with several groups and no group_policy needs the bundled Placement (see
// docs/placement-extensions.md), as does one with a group that only forbids: see
// [Request.Extensions]. All other requests are the same for every Placement.
package resourcerequest
