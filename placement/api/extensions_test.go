// SPDX-License-Identifier: Apache-2.0

package api

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestNewerMicroversionKeepsExtensions: a server with one microversion more grants extensions to
// the clients to which it granted them before, and to those that ask for the newer one.
func TestNewerMicroversionKeepsExtensions(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	a := oneHost(t, zerolog.Nop())
	a.newest = wire.MaxVersion + 1
	for version, want := range map[string]string{
		"1.38": "", "1.39": wire.ExtIsolate, a.newest.String(): wire.ExtIsolate, "latest": wire.ExtIsolate,
	} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/allocation_candidates?resources=VCPU:1", nil)
		r.Header.Set(wire.HeaderVersion, wire.ServiceType+" "+version)
		r.Header.Set(wire.HeaderExtensions, wire.ExtIsolate)
		w := httptest.NewRecorder()
		a.ServeHTTP(w, r)
		if got := w.Header().Get(wire.HeaderExtensions); w.Code != http.StatusOK || got != want {
			t.Errorf("%s: status %d, the extensions are %q, want %q", version, w.Code, got, want)
		}
	}
}

// TestExtensionsVaryOnce: Vary names the header of the extensions once, however often a call asks
// which it grants.
func TestExtensionsVaryOnce(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	x, w := &exchange{api: oneHost(t, zerolog.Nop()), v: wire.MaxVersion}, httptest.NewRecorder()
	x.R, x.W = httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", http.NoBody), w
	x.R.Header.Set(wire.HeaderExtensions, wire.ExtIsolate)
	for range 2 {
		testproc.Equal(t, x.extensions().String(), wire.ExtIsolate, "the extensions are %q")
	}
	testproc.EqualList(t, w.Header()["Vary"], []string{strings.ToLower(wire.HeaderExtensions)}, "Vary is %q")
}
