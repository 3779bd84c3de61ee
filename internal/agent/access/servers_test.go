// SPDX-License-Identifier: Apache-2.0

package access_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/internal/agent/access"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestServersOfARenamedHost are known only if the cell answers for the former name, and for the new
// one, unless the credentials are not for that yet. That it has no host of one name says nothing of
// the other.
func TestServersOfARenamedHost(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const ok, denied, none, broken = http.StatusOK, http.StatusForbidden, http.StatusNotFound,
		http.StatusInternalServerError
	codes := map[int]cellwire.Code{denied: cellwire.CodeForbidden, none: cellwire.CodeNotFound, broken: "internal"}
	for name, c := range map[string]struct {
		now, former int // statuses; 0: there is no former name
		unknown     bool
	}{
		"both are known":                       {now: ok, former: ok},
		"it reported by the former name":       {now: none, former: ok},
		"credentials of the former name":       {now: denied, former: ok},
		"it never reported":                    {now: none, former: none},
		"new credentials":                      {now: none, former: denied, unknown: true},
		"new credentials, it reported since":   {now: ok, former: denied, unknown: true},
		"credentials of no name":               {now: denied, former: denied, unknown: true},
		"former credentials, never reported":   {now: denied, former: none, unknown: true},
		"no answer about the former name":      {now: ok, former: broken, unknown: true},
		"no answer about the new name":         {now: broken, former: ok, unknown: true},
		"one name":                             {now: ok},
		"one name that the cell does not have": {now: none},
		"another one's credentials":            {now: denied, unknown: true},
	} {
		t.Run(name, func(t *testing.T) {
			cell := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				status, host := c.now, "now"
				if strings.Contains(r.URL.Path, "/former/") {
					status, host = c.former, "former"
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(status)
				var body any = cellwire.Work{Epoch: "e",
					Revision: 1, Complete: true, Items: []cellwire.WorkItem{{Server: cellwire.Server{UUID: host}}}}
				if status != ok {
					body = cellwire.Error{Code: codes[status], Message: "no"}
				}
				_ = json.NewEncoder(w).Encode(body)
			}))
			defer cell.Close()
			former := "former"
			if c.former == 0 {
				former = ""
			}
			got := access.ServersOf(t.Context(), config.CellClient{URL: cell.URL}, zerolog.Nop(), "now", former)
			want := 0
			for _, status := range []int{c.now, c.former} {
				if status == ok {
					want++
				}
			}
			if (got.Unknown != "") != c.unknown || len(got.Items) != want {
				t.Errorf("%d servers, want %d; unknown: %q", len(got.Items), want, got.Unknown)
			}
		})
	}
}
