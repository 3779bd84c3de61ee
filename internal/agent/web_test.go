// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/agent"
	"github.com/compute-agent/compute-agent/internal/agent/control"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/health"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// get asks an agent for a page: by its control socket where socket is given.
func get(t *testing.T, url, socket string) (status int, body string) {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	if socket != "" {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}
	}
	resp := testproc.Try((&http.Client{Transport: transport}).Get(url)).Or(t)
	defer func() { _ = resp.Body.Close() }()
	content := testproc.Try(io.ReadAll(resp.Body)).Or(t)
	return resp.StatusCode, string(content)
}

// TestMetricsAndProbes: what a whole agent tells Prometheus and those who probe it, traced on the
// way.
func TestMetricsAndProbes(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newEnv(t)
	address := testproc.FreeAddress(t)
	// A collector that does not run disturbs nothing.
	h.configure(h.node("fake", "cn1", uuidA, ""),
		fmt.Sprintf("[metrics]\nlisten = %q\n[tracing]\nendpoint = \"http://%s\"\n", address, testproc.FreeAddress(t)))
	h.start()
	<-h.ready
	socket := filepath.Join(h.dir, "run", "agent.sock")
	for name, where := range map[string]struct{ url, socket string }{"by TCP": {"http://" + address + "/metrics", ""},
		"by the control socket": {"http://agent/metrics", socket}} {
		status, page := get(t, where.url, where.socket)
		if status != http.StatusOK {
			t.Fatalf("%s: %d %s", name, status, page)
		}
		for _, want := range []string{
			`compute_agent_passes_total{driver="fake",node="cn1",outcome="succeeded"} `,
			`compute_agent_driver_call_duration_seconds_count{driver="fake",outcome="succeeded"} `,
			`compute_agent_placement_requests_total{method="PUT",route="/resource_providers/{uuid}/inventories",` +
				`status="200"} 1`,
			`compute_agent_writes_total{kind="set_inventories"} 1`,
			`compute_agent_writes_total{kind="create_provider"} 1`,
			`compute_agent_node_writes_total{driver="fake",node="cn1"} `,
			`compute_agent_plugin_state{driver="fake",state="healthy"} 1`,
			`compute_agent_nodes{driver="fake",state="reporting"} 1`,
			`compute_agent_conditions{code="identity-refused",severity="critical"} 0`,
			`compute_agent_last_sync_age_seconds{driver="fake",node="cn1"} `,
			`compute_agent_placement_request_retries_total 0`,
		} {
			if !strings.Contains(page, "\n"+want) {
				t.Errorf("%s: %s is missing in\n%s", name, want, compact(page))
			}
		}
	}
	for path, want := range map[string]string{"/healthz": "alive\n", "/readyz": "ready\n"} {
		if status, body := get(t, "http://"+address+path, ""); status != http.StatusOK || body != want {
			t.Errorf("%s: %d %q", path, status, body)
		}
	}

	// Two agents for one name: Placement knows it as another, and that does not fix itself.
	at := h.mark()
	h.configure(h.node("fake", "cn1", uuidB, ""), fmt.Sprintf("[metrics]\nlisten = %q\n", address))
	h.reload <- os.Interrupt
	h.await(at, "identity-refused", `"level":"error"`, `"node":"cn1"`, `"hint"`)
	if status, body := get(t, "http://"+address+"/readyz", ""); status != http.StatusServiceUnavailable ||
		!strings.Contains(body, health.Define(health.IdentityRefused).Title) {
		t.Errorf("/readyz: %d %q", status, body)
	}
	if status, _ := get(t, "http://"+address+"/healthz", ""); status != http.StatusOK {
		t.Errorf("/healthz: %d", status)
	}
	s := testproc.Try(control.NewClient(socket).Status(t.Context())).Or(t)
	if len(s.Conditions) == 0 || s.Conditions[0].Code != health.IdentityRefused || s.State != "degraded" ||
		!strings.Contains(s.Summary, "node cn1: the resource provider in Placement does not match") {
		t.Errorf("%s: %s: %+v", s.State, s.Summary, s.Conditions)
	}
	h.mu.Lock()
	log := h.log.String()
	h.mu.Unlock()
	testproc.Equal(t, strings.Count(log, `"condition":"identity-refused"`), 1, "told %d times")
}

// compact leaves the agent's own samples of a page.
func compact(page string) string {
	var out strings.Builder
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "compute_agent") && !strings.Contains(line, "_bucket") {
			out.WriteString(line)
		}
	}
	return out.String()
}

// TestMetricsAddressThatIsTaken: the address is configured, so this is an error.
func TestMetricsAddressThatIsTaken(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	h := newEnv(t)
	l := testproc.Try(net.Listen("tcp", "127.0.0.1:0")).Or(t)
	defer func() { _ = l.Close() }()
	h.configure(h.node("fake", "cn1", uuidA, ""), fmt.Sprintf("[metrics]\nlisten = %q\n", l.Addr()))
	cfg := testproc.Try(config.Load(config.Options{File: filepath.Join(h.dir, "agent.toml")})).Or(t)
	a := testproc.Try(agent.New(agent.Options{Config: cfg, Logger: zerolog.Nop()})).Or(t)
	testproc.ErrorHas(t, a.Run(t.Context()), "metrics.listen", "Run: %v")
}
