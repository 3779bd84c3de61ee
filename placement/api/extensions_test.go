// SPDX-License-Identifier: Apache-2.0

package api

import (
	"net/http"
	"net/http/httptest"
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

// TestParametersOfExtensions: a parameter of an extension is there from its microversion on, for
// clients that get the extension. Parameters of no extension do not ask for them: the headers of
// their answers do not depend on them.
func TestParametersOfExtensions(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	granted := func() extensions { return readExtensions([]string{wire.ExtIsolate}) }
	unasked := func() extensions { t.Error("asks for the extensions"); return 0 }
	for _, c := range []struct {
		origin
		ext  func() extensions
		want bool
	}{
		{origin{since: wire.RequiredFilter, extension: wire.ExtIsolate}, granted, true},
		{origin{since: wire.RequiredFilter, extension: wire.ExtGroupPolicy}, granted, false},
		{origin{since: wire.AnyTraits, extension: wire.ExtIsolate}, granted, false},
		{origin{since: wire.RequiredFilter}, unasked, true},
		{origin{since: wire.AnyTraits}, unasked, false},
	} {
		testproc.Equal(t, c.existsAt(wire.Version(wire.RequiredFilter), c.ext), c.want, "%+v is %v", c.origin)
	}
}
