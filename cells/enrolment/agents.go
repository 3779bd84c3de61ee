// SPDX-License-Identifier: Apache-2.0

package enrolment

import (
	"errors"
	"time"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/internal/agentruns"
	"github.com/compute-agent/compute-agent/internal/osapi"
)

// comparisonName is the name under which all services of an API database compare the agents of
// hosts.
const comparisonName = "enrolment"

// Window is how long after it has renewed or confirmed a certificate an agent still counts as one
// of two: agents confirm theirs each 24th of its life, and somewhat later.
func Window(life time.Duration) time.Duration { return life / 8 }

// LiveAgents are the agents of an enrolment, if it is proven that there are several now.
func LiveAgents(e apidb.Enrolment, now time.Time) []agentruns.Process {
	return e.Agents.Live(now, Window(e.ExpiresAt.Sub(e.Issued)))
}

// errUnchanged says that nothing is to be written.
var errUnchanged = errors.New("nothing has changed")

// compareAgents records which run of an agent shows the certificate. The answer then says whether
// another run shows it too. A request with a refused key is recorded as well: either its sender or
// the host is a copy. It refuses no request. Cost: a read, and a write if the agent is new or not
// the only one.
func (x *exchange) compareAgents(h holder) {
	p := agentruns.ReadProcessHeader(x.R.Header)
	if p == nil || x.comparisons.exceeded(h.limiterKey()) {
		return
	}
	x.comparisons.add(h.limiterKey())
	found := false
	take := func(e *apidb.Enrolment) error {
		if e.State != apidb.Enrolled || h.id.Issued.Before(e.DeniedBefore) {
			return errUnchanged
		}
		window := Window(e.ExpiresAt.Sub(e.Issued))
		was := e.Agents.Live(h.now, window)
		e.Agents.Add(p.Report(comparisonName, osapi.ClientAddress(x.R)), h.now, window)
		found = was == nil && e.Agents.Live(h.now, window) != nil
		if !e.Agents.Changed {
			return errUnchanged
		}
		return nil
	}
	e, err := x.config.Store.Enrolment(x.R.Context(), h.id.Name)
	if err == nil {
		if err = take(&e); err == nil {
			e, err = x.config.Store.ChangeEnrolment(x.R.Context(), h.id.Name, take)
		}
	}
	switch {
	case errors.Is(err, errUnchanged):
	case err != nil:
		x.config.Logger.Warn().Err(err).Str("host", h.id.Name).
			Msg("Which agent of a host asks was not noted: a second machine with its identity is found later.")
		return
	}
	if e.Agents.Turn == 0 {
		return
	}
	window := Window(e.ExpiresAt.Sub(e.Issued))
	x.W.Header().Set(agentruns.HeaderProcess, e.Agents.Answer(comparisonName, e.Host, h.now, window))
	if found {
		x.config.Logger.Warn().Str("host", e.Host).
			Str("agents", agentruns.SeveralAgents(e.Host, e.Agents.Live(h.now, window))).
			Msg("Two machines have the identity of a host: both of their agents live. Stop the one on the copy. If " +
				"no operator made a copy, evict the host: " +
				"compute-agent cells manage evict-host.")
	}
}
