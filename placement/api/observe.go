// SPDX-License-Identifier: Apache-2.0

package api

import (
	"time"

	"github.com/compute-agent/compute-agent/internal/osapi"
)

// Observer receives the events of the API, for metrics.
type Observer interface {
	osapi.Observer
	// Searched is called once for each search for allocation candidates, as Answered for each
	// request.
	Searched(Search)
	// ReadStale is called for each read that was answered from a state of an age.
	ReadStale(age time.Duration)
	// HostLimited is called for each write of a host that is refused with 429.
	HostLimited()
}

// Search is one search for allocation candidates.
type Search struct {
	// Candidates is how many were returned.
	Candidates int
	// Steps is the number of assignments that the search tried.
	Steps int
}

// Load returns the current load of the API.
func (a *API) Load() osapi.Load { return a.service.Load() }
