// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cmd/compute-agent/internal/cli"
	"github.com/compute-agent/compute-agent/placement"
	"github.com/compute-agent/compute-agent/placement/api"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestPlacementExplain asks a server for explanations, as a user does.
func TestPlacementExplain(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	server := testproc.Try(placement.New(t.Context(), placement.Config{
		StateDir: t.TempDir(), Listen: "127.0.0.1:0", Auth: placement.Auth{Strategy: placement.NoAuth},
		Policy: api.Legacy, Logger: zerolog.Nop(),
	})).Or(t)
	t.Cleanup(func() { testproc.NoError(t, server.Close()) })
	listener := testproc.Try((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")).Or(t)
	ours := &httptest.Server{Listener: listener, Config: &http.Server{Handler: server.Handler()}}
	ours.Start()
	t.Cleanup(ours.Close)
	external := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("OpenStack-API-Version", r.Header.Get("OpenStack-API-Version"))
		http.NotFound(w, r)
	}))
	t.Cleanup(external.Close)
	for _, e := range []struct {
		args   []string
		code   int
		out    string // is in it
		stderr string
	}{
		{args: []string{"resources=VCPU:1"}, out: "There are no resource providers.\n"},
		{args: []string{"http://log/allocation_candidates?limit=5&resources=VCPU%3A1"},
			out: "There are no resource providers.\n"},
		{args: []string{"resources=VCPU:1", "--output", "json"}, out: `"verdict": "There are no resource providers."`},
		{args: []string{"resources=VCPU:1&resources_A=VGPU:1&resources_B=VGPU:1&isolate=_A"}, out: "group _A, VGPU:1"},
		{args: []string{`127.0.0.1 "GET /placement/allocation_candidates?resources=VCPU%3A1" status: 200 len: 53 ` +
			`microversion: 1.36`}, out: "There are no resource providers.\n"},
		{args: []string{"resources=VCPU:1", "--url", "nonsense"}, code: cli.ExitUsage, stderr: "--url"},
		{args: []string{"resources=VCPU:1", "--url", "http://127.0.0.1:1"}, code: cli.ExitFailed,
			stderr: "check that it runs"},
		{args: []string{"resources=VCPU"}, code: cli.ExitFailed,
			stderr: "rejects the query (400): Badly formed resources parameter"},
		{args: []string{"resources=VCPU:1&same_subtree=_A", "--microversion", "1.20"}, code: cli.ExitFailed,
			stderr: "rejects the query (400)"},
		{args: []string{"resources=VCPU:1", "--microversion", "1.9"}, code: cli.ExitFailed,
			stderr: "from microversion 1.10 on"},
		{args: []string{"resources"}, code: cli.ExitUsage, stderr: `"resources" in the query is not NAME=VALUE`},
		{args: []string{"resources=VCPU:1&required=CUSTOM_A,CUST…"}, code: cli.ExitUsage,
			stderr: "the query is truncated"},
		{args: []string{""}, code: cli.ExitUsage, stderr: "the query is empty"},
		{args: []string{"resources=VCPU:1", "--url", external.URL}, code: cli.ExitFailed,
			stderr: "only compute-agent's own Placement does"},
	} {
		t.Run(strings.Join(e.args, " "), func(t *testing.T) {
			var out, stderr bytes.Buffer
			args := append([]string{"placement", "explain", "--url", ours.URL}, e.args...)
			if code := execute(t.Context(), args, &out, &stderr); code != e.code {
				t.Errorf("exit code %d, want %d; %s", code, e.code, stderr.String())
			}
			if !strings.Contains(out.String(), e.out) || !strings.Contains(stderr.String(), e.stderr) {
				t.Errorf("standard output:\n%s\nstandard error:\n%s\nwant %q and %q",
					out.String(), stderr.String(), e.out, e.stderr)
			}
		})
	}
}
