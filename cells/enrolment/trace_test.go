// SPDX-License-Identifier: Apache-2.0

package enrolment_test

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/enrolment"
	"github.com/compute-agent/compute-agent/internal/pki"
	"github.com/compute-agent/compute-agent/internal/tracing"
	"github.com/compute-agent/compute-agent/test/otlp"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestTraces: a join is a trace, and the service's part of a renewal and a confirmation is in the
// trace of the host's agent. There is no trace of a client without a good token or certificate.
func TestTraces(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	collector := otlp.NewCollector(t)
	start := func(service string) *tracing.Tracing {
		spans, err := tracing.New(t.Context(),
			tracing.Config{Endpoint: collector.URL, SampleRatio: 1, Service: service, Logger: zerolog.Nop()})
		must(t, err)
		return spans
	}
	api, agent := start("compute-api"), start("compute-agent")
	list := filepath.Join(t.TempDir(), "denied")
	must(t, pki.EditDenyFile(list, func(*pki.DenyList) (*pki.DenyList, error) {
		return pki.NewDenyList([]pki.Denial{{Host: "stolen", Before: time.Now().Add(time.Hour)}})
	}))
	denied := testproc.Try(pki.OpenDenyFile(list, zerolog.Nop())).Or(t)
	w := newWorld(t, func(c *enrolment.Config) { c.Tracing, c.Denied = api, denied })
	refused := new(enrolment.Refusal)
	_, err := w.join(enrolment.NewToken(w.ca.Fingerprint()), newKeyPair(t, "cn1"))
	if !errors.As(err, &refused) || refused.Code != enrolment.CodeTokenUnknown {
		t.Fatal(err)
	}
	if status, _ := w.send(nil, http.MethodPost,
		"/v1/renew", "application/json", nil); status != http.StatusUnauthorized {
		t.Fatal(status)
	}
	w.joined("cn0")
	stolen := signed(t, w.ca, pki.Identity{Kind: pki.Host, Name: "stolen", Names: []string{"stolen"}}, false)
	if err := w.confirm(stolen); !errors.As(err, &refused) || refused.Code != enrolment.CodeEvicted {
		t.Fatal(err)
	}

	k := newKeyPair(t, "cn1")
	answer := testproc.Try(w.join(w.invite("cn1", false), k)).Or(t)
	client := &enrolment.Client{
		URL: w.url, CAFile: filepath.Join(t.TempDir(), "ca.pem"),
		IdentityFile: filepath.Join(t.TempDir(), "identity.pem"),
		Tracing:      func() *tracing.Tracing { return agent },
	}
	must(t, os.WriteFile(client.CAFile, []byte(answer.CA), 0o600))
	must(t, os.WriteFile(client.IdentityFile, append(k.key, answer.Certificate...), 0o600))
	must(t, client.Confirm(t.Context()))
	testproc.Try(client.Renew(t.Context(), newKeyPair(t, "cn1").csr, nil)).Or(t)
	api.Close(t.Context())
	agent.Close(t.Context())

	want := []string{"POST /v1/confirm", "POST /v1/confirm > POST /v1/confirm", "POST /v1/join", "POST /v1/join",
		"POST /v1/renew", "POST /v1/renew > POST /v1/renew"}
	testproc.Samef(t, cmp.Diff(want, collector.Tree()), "spans")
	for _, s := range collector.Spans() {
		if s.Service == "compute-api" &&
			(s.Attributes[tracing.KeyHost] == "" || s.Attributes[tracing.KeyRequestID] == "") {
			t.Errorf("the span: got %+v, want the host and the request id", s)
		}
	}
}
