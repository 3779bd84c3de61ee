// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"net/http"
	"strings"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/internal/osapi"
)

// maxLogged bounds in bytes what is logged of a client's own text.
const maxLogged = 100

// logRejected logs a rejected client, at most once a minute per client and reason.
func (c *Cell) logRejected(r *http.Request, one *call, who caller, refusal *osapi.Error) {
	from, names := osapi.ClientAddress(r), certificateNames(r)
	if !c.logLimiter.Allow(strings.Join(append([]string{from, refusal.Code, who.user}, names...), " ")) {
		return
	}
	fields := c.config.Logger.With().Str("address", from)
	if len(names) > 0 {
		fields = fields.Strs("certificate", names)
	}
	if who.user != "" {
		fields = fields.Str("user", textutil.Clip(who.user, maxLogged))
	}
	if host := r.PathValue("host"); host != "" {
		fields = fields.Str("host", textutil.Clip(host, maxLogged))
	}
	hint := c.config.Auth.hint(one.need)
	if who.cell != "" && who.cell != c.config.Name {
		hint = "if the host was not configured for this cell by mistake, its credential may be stolen"
	}
	log := fields.Str("call", one.method+" "+one.path).Str("why", refusal.Message).Str("hint", hint).Logger()
	log.Warn().Msg("Rejected a request: its sender is unknown or not authorized. Logged at most once a minute for " +
		"similar requests.")
}

// certificateNames are the names in the client's certificate that was verified, ten at most.
func certificateNames(r *http.Request) []string {
	if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 || len(r.TLS.VerifiedChains[0]) == 0 {
		return nil
	}
	certificate := r.TLS.VerifiedChains[0][0]
	var names []string
	for _, name := range append([]string{certificate.Subject.CommonName}, certificate.DNSNames...) {
		if name != "" && len(names) < 10 {
			names = append(names, textutil.Clip(name, maxLogged))
		}
	}
	return names
}

// hint is how to admit a client that should be.
func (a Auth) hint(need permission) string {
	switch {
	case a.name == peerName && need == hostAgentOnly:
		return "if it is the agent of this machine: its user is to be in [cell] agent_users, and agent.host is to " +
			"be the same in the configuration of the cell and of the agent"
	case a.name == peerName:
		return "if it is the compute API: its user is to be in [cell] api_users"
	case a.name == "mtls" && need == hostAgentOnly:
		return "if it is the agent of that host: its certificate ([cell_client] cert_file) is to have the name of " +
			"the host, as agent.host says, and no name of [cell] api_names"
	case a.name == "mtls":
		return "if it is the compute API: a name in its certificate ([compute_api] cell_cert_file) is to be in " +
			"[cell] api_names"
	case need == hostAgentOnly:
		return "if it is the agent of that host: its token ([cell_client] token_file) is to be in [cell] token_file " +
			"with the role agent and the name of the host, as agent.host says, as the user"
	default:
		return "if it is the compute API: its token ([compute_api] cell_token_file) is to be in [cell] token_file " +
			"with the role compute-api"
	}
}
