// SPDX-License-Identifier: Apache-2.0

package api

import (
	"time"

	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/internal/pki"
)

// agentWindow is how long after its last request an agent still counts as one of two. An agent
// whose tree does not change asks every five minutes ([tracker] association_refresh).
const agentWindow = 20 * time.Minute

// compareAgents notes which run of an agent sends the request, and has the answer say whether
// another one reports as the same host. Users who write any tree say themselves whose agent they
// are. It refuses nothing.
func (x *exchange) compareAgents() {
	p := pki.ReadProcessHeader(x.R.Header)
	if p == nil {
		return
	}
	host, key := p.Host, "identity "+p.Identity
	switch {
	case x.Who.Host != nil:
		host, key = x.Who.Host.Name, "host "+hostKey(x.Who.Host.Name)
	case p.Host == "" || p.Identity == "" || !x.api.policy.Allows(UpdateProvider, &x.Who, ""):
		return
	}
	answer, found := x.api.agents.Add(key, host, osapi.ClientAddress(x.R), p)
	if answer != "" {
		x.W.Header()[pki.HeaderProcess] = []string{answer}
	}
	if found != nil && x.api.bounds.logged.Allow("agents of "+key) {
		x.api.service.Logger.Warn().Str("host", shortened(host)).Str("agents", pki.SeveralAgents(host, found)).
			Msg("Two machines have the identity of a host: both of their agents live. Stop the one on the copy. " +
				"Logged at most once a minute per host.")
	}
}

// HostsOfSeveralAgents is how many hosts several agents report as now, as far as this process
// knows.
func (a *API) HostsOfSeveralAgents() int { return a.agents.Several() }
