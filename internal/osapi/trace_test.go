// SPDX-License-Identifier: Apache-2.0

package osapi

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/internal/tracing"
	"github.com/compute-agent/compute-agent/test/otlp"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestWhoDecidesWhatIsTraced: hosts, services and administrators have their requests recorded and
// joined to their traces. Others do not, whatever they send.
func TestWhoDecidesWhatIsTraced(t *testing.T) {
	const trace = "0af7651916cd43dd8448eb211c80319c"
	c := otlp.NewCollector(t)
	// records nothing by itself
	spans, err := tracing.New(t.Context(), tracing.Config{Endpoint: c.URL, Logger: zerolog.Nop()})
	testproc.Check(t, err)
	for name, who := range map[string]Principal{
		"host": hostPrincipal(pki.Identity{Name: "cn1"}), "service": {User: "u", Roles: []string{"service"}},
		"admin":         {User: "u", Project: "p", Roles: []string{"admin"}},
		"member":        {User: "u", Project: "p", Roles: []string{"member", "reader", "manager"}},
		"system reader": {User: "u", Roles: []string{"reader"}, SystemScope: true}, "nobody": {},
	} {
		s := NewService(Options{Authenticator: Fixed{who}, Tracing: spans, Logger: zerolog.Nop()})
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set(tracing.HeaderTraceparent, "00-"+trace+"-b7ad6b7169203331-01")
		serve(s, r, func(x *Exchange) error {
			x.Route = "/" + name
			if err := x.Authenticate(); err != nil {
				return err
			}
			if !tracing.Within(x.R.Context()) {
				t.Errorf("%s: the request has no trace context", name)
			}
			x.Send(http.StatusOK, nil)
			return nil
		})
	}
	spans.Close(t.Context())
	for _, name := range []string{"host", "service", "admin"} {
		s := c.Named(t, "GET /"+name)
		if s.Trace != trace || s.Attributes[tracing.KeyHost] != map[string]string{"host": "cn1"}[name] {
			t.Errorf("the span: got %+v, want the trace of the request, and a host for hosts alone", s)
		}
	}
	if n := len(c.Spans()); n != 3 {
		t.Errorf("%d spans: %v", n, c.Tree())
	}
}
