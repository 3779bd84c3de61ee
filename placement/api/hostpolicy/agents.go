// SPDX-License-Identifier: Apache-2.0

package hostpolicy

import (
	"time"

	"github.com/compute-agent/compute-agent/internal/agentruns"
	"github.com/compute-agent/compute-agent/internal/osapi"
)

// agentWindow is how long after its last request an agent still counts as one of two. An agent
// whose tree does not change asks every five minutes ([tracker] association_refresh).
const agentWindow = 20 * time.Minute

// CompareAgents notes which run of an agent sends the request, and has the answer say whether
// another one reports as the same host. Users who write any tree, which writesAny reports, say
// themselves whose agent they are. It refuses nothing.
func (p *Policy) CompareAgents(x *osapi.Exchange, writesAny func() bool) {
	process := agentruns.ReadProcessHeader(x.R.Header)
	if process == nil {
		return
	}
	host, key := process.Host, "identity "+process.Identity
	switch {
	case x.Caller.Host != nil:
		host, key = x.Caller.Host.Name, "host "+HostKey(x.Caller.Host.Name)
	case process.Host == "" || process.Identity == "" || !writesAny():
		return
	}
	answer, found := p.agents.Add(key, host, osapi.ClientAddress(x.R), process)
	if answer != "" {
		x.W.Header()[agentruns.HeaderProcess] = []string{answer}
	}
	if found != nil && p.bounds.logged.Allow("agents of "+key) {
		p.deps.Logger.Warn().Str("host", shortened(host)).Str("agents", agentruns.SeveralAgents(host, found)).
			Msg("Two machines have the identity of a host: both of their agents live. Stop the one on the copy. " +
				"Logged at most once a minute per host.")
	}
}

// SeveralAgents is how many hosts several agents report as now, as far as this process knows.
func (p *Policy) SeveralAgents() int { return p.agents.Several() }
