// SPDX-License-Identifier: Apache-2.0

package api

import (
	"errors"
	"hash/maphash"
	"math/rand/v2"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/placement/candidates"
	"github.com/compute-agent/compute-agent/placement/wire"
)

// maxCandidates bounds the candidates of one answer, whatever the client and the options say.
const maxCandidates = 100_000

// listCandidates is GET /allocation_candidates.
//
// Cost: that of the search, which ends at the limit, and about 0.1 µs for each pair of provider and
// class in a candidate. The summaries of a tree are made once for as long as nothing changes in it
// (1.29); then, they are copied. Nothing is allocated for a candidate or a summary while memory is
// kept from answers before. Before 1.29 the search ends at the limit only where trees have one
// provider each.
func listCandidates(x *exchange) error {
	cq, err := candidates.ReadURLQuery(x.R.URL.RawQuery, x.v, x.extensions())
	if err != nil {
		return err
	}
	s, err := x.read()
	if err != nil {
		return err
	}
	o, limit := x.searchOptions(&cq)
	a := x.api.answers.acquire(s, x.v, &cq, limit)
	defer x.api.answers.release(a)
	ended := func(int) {}
	if o.Seed == 0 {
		o.Rotation, ended = x.api.rotated.begin(x.R.URL.RawQuery, limit)
	}
	stats, err := candidates.Search(x.R.Context(), s, &cq.Request, o, a.add)
	ended(stats.Passed)
	if x.api.observer != nil {
		x.api.observer.Searched(Search{Candidates: a.count, Steps: stats.Steps})
	}
	if err != nil {
		return refusedNames(err)
	}
	body, err := a.body()
	if err != nil {
		return err
	}
	if a.count < limit && (stats.Exhausted || a.large) || a.count == maxCandidates && cq.Limit != maxCandidates {
		x.logCutShort(stats, a)
	}
	return x.json(http.StatusOK, body[0], time.Time{}, body[1:]...)
}

// searchOptions are the options of one search, and the number of candidates to return. The search
// may need more; see candidatesAnswer.used.
func (x *exchange) searchOptions(cq *candidates.URLQuery) (o candidates.Options, limit int) {
	o = candidates.Options{Limit: maxCandidates, DepthFirst: x.api.options.DepthFirst}
	if most := x.api.options.MaxCandidates; most > 0 {
		o.Limit = min(o.Limit, most)
	}
	limit = o.Limit
	if cq.Limit > 0 {
		limit = int(min(int64(limit), cq.Limit))
	}
	if !cq.Flat {
		o.Limit = limit
	}
	if x.api.options.Randomize {
		o.Seed = rand.Uint64() | 1
	}
	return o, limit
}

// rotations record where the last search for each query stopped. Queries can share an entry.
type rotations struct {
	seed    maphash.Seed // of this process: servers of one database begin at different trees
	cursors [1024]rotationCursor
}

// rotationCursor is where the next search for a query begins, and how far the last one advanced.
type rotationCursor struct{ at, passed atomic.Uint64 }

// begin returns the rotation of a search, and a function to call with how far it advanced.
// Concurrent searches begin as far apart as the last one advanced.
func (r *rotations) begin(query string, limit int) (candidates.Rotation, func(passed int)) {
	hash := maphash.String(r.seed, query)
	p := &r.cursors[hash%uint64(len(r.cursors))]
	reserved := max(p.passed.Load(), 1)
	at := p.at.Add(reserved) - reserved
	return candidates.Rotation{At: at, Phase: hash, Window: limit}, func(passed int) {
		p.passed.Store(uint64(passed))
		p.at.CompareAndSwap(at+reserved, at+uint64(passed))
	}
}

// refusedNames maps the error of a search about unknown names to Placement's answer.
func refusedNames(err error) error {
	var unknown *candidates.UnknownNameError
	switch {
	case !errors.As(err, &unknown):
		return err
	case unknown.Trait != "":
		return badRequest("No such trait(s): %s.", shortened(unknown.Trait))
	}
	return badRequest("Invalid resource class in resources parameter: No such resource class %s.",
		shortened(unknown.Class))
}

// logCutShort logs an answer that may lack candidates although no limit was set.
func (x *exchange) logCutShort(stats candidates.Stats, a *candidatesAnswer) {
	why := "the server gives at most this many candidates at once"
	switch {
	case stats.Exhausted:
		why = "the search took more steps than it may"
	case a.large:
		why = "the answer became larger than it may"
	}
	x.api.service.Logger.Warn().Str("request_id", x.ID).Str("query", shortened(x.R.URL.RawQuery)).Str("why", why).
		Int("candidates", a.count).Int("trees", stats.Trees).Int("steps", stats.Steps).
		Msg("A search for allocation candidates reached its bound, so the answer is incomplete. Have the client set " +
			"a limit or ask for fewer groups at once, or set max_allocation_candidates.")
}

// appendRequest appends one member of allocation_requests.
func appendRequest(b []byte, v wire.Version, groups []candidates.Group, c *candidates.Candidate) []byte {
	b = append(b, `{"allocations":`...)
	if v.Has(wire.AllocationsByUUID) {
		b = appendAllocations(b, c)
	} else {
		b = appendAllocationList(b, c)
	}
	if v.Has(wire.Mappings) {
		b = appendMappings(b, groups, c)
	}
	return append(b, '}')
}

// appendAllocations appends the allocations by provider, as PUT /allocations/{consumer} takes them
// from 1.12 on.
func appendAllocations(b []byte, c *candidates.Candidate) []byte {
	b = append(b, '{')
	b = appendByProvider(b, c, "", `:{"resources":{`)
	return append(b, '}')
}

// appendAllocationList appends the allocations as PUT /allocations/{consumer} takes them before
// 1.12.
func appendAllocationList(b []byte, c *candidates.Candidate) []byte {
	b = append(b, '[')
	b = appendByProvider(b, c, `{"resource_provider":{"uuid":`, `},"resources":{`)
	return append(b, ']')
}

// appendByProvider appends the resources of each provider after its uuid, which is between before
// and after.
func appendByProvider(b []byte, c *candidates.Candidate, before, after string) []byte {
	for i := range c.Allocations {
		a := &c.Allocations[i]
		if i == 0 || a.Provider != c.Allocations[i-1].Provider {
			if i > 0 {
				b = append(b, "}},"...)
			}
			b = append(b, before...)
			b = jsonkit.AppendString(b, a.Provider.UUID)
			b = append(b, after...)
		}
		b = wire.AppendResource(b, a.Class, a.Amount)
	}
	if len(c.Allocations) > 0 {
		b = append(b, "}}"...)
	}
	return b
}

// appendMappings appends the providers that serve each group (1.34). Suffixes need no escapes.
func appendMappings(b []byte, groups []candidates.Group, c *candidates.Candidate) []byte {
	b = append(b, `,"mappings":{`...)
	for i, providers := range c.Groups {
		b = append(jsonkit.AppendComma(b), '"')
		b = append(b, groups[i].Suffix...)
		b = append(b, `":[`...)
		for _, p := range providers {
			b = jsonkit.AppendString(jsonkit.AppendComma(b), p.UUID)
		}
		b = append(b, ']')
	}
	return append(b, '}')
}
