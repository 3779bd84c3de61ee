// SPDX-License-Identifier: Apache-2.0

package cell

import (
	"net"
	"net/http"
	"strings"

	"github.com/compute-agent/compute-agent/internal/osapi"
)

// warn logs that somebody was turned away, at most once a minute for each of them: who tries again and again shall be seen, and not fill the log.
func (c *Cell) warn(r *http.Request, one *call, who caller, refusal *osapi.Error) {
	address, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		address = r.RemoteAddr // a unix socket has none
	}
	names := certificateNames(r)
	if !c.refused.Allow(strings.Join(append([]string{address, refusal.Code, who.user}, names...), " ")) {
		return
	}
	fields := c.config.Logger.With().Str("address", address)
	if len(names) > 0 {
		fields = fields.Strs("certificate", names)
	}
	if who.user != "" {
		fields = fields.Str("user", shortened(who.user))
	}
	if host := r.PathValue("host"); host != "" {
		fields = fields.Str("host", shortened(host))
	}
	log := fields.Str("call", one.method+" "+one.path).Str("why", refusal.Message).Str("remedy", c.config.Auth.remedy(one.need)).Logger()
	log.Warn().Msg("A request was refused: who sent it is not known here, or may not do that. Requests like it are told of once a minute.")
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
			names = append(names, shortened(name))
		}
	}
	return names
}

// shortened is what somebody sent, fit for a line of log.
func shortened(text string) string {
	const longest = 100
	if len(text) > longest {
		return strings.ToValidUTF8(text[:longest], "") + "..."
	}
	return text
}

// remedy is what lets somebody in who should be.
func (a Auth) remedy(need right) string {
	switch {
	case a.name == "mtls" && need == theHost:
		return "if it is the agent of that host: its certificate ([cell_client] cert_file) is to have the name of the host, as agent.host says, and no name of [cell] api_names"
	case a.name == "mtls":
		return "if it is the compute API: a name in its certificate ([compute_api] cell_cert_file) is to be in [cell] api_names"
	case need == theHost:
		return "if it is the agent of that host: its token ([cell_client] token_file) is to be in [cell] token_file with the role agent and the name of the host, as agent.host says, as the user"
	default:
		return "if it is the compute API: its token ([compute_api] cell_token_file) is to be in [cell] token_file with the role compute-api"
	}
}
