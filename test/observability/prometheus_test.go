// SPDX-License-Identifier: Apache-2.0

package observability_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/compute-agent/compute-agent/test/testproc"
)

var binaries = testproc.Of("cmd/compute-agent", "cmd/compute-driver-fake")

func TestMain(m *testing.M) { os.Exit(binaries.Main(m)) }

// configured are series that services have only where something is configured that is not in this
// test. Their meaning in docs/metrics.md says so. Other series that rules and dashboards use are
// there from the start: of a counter that is there after its first event only, that event is no
// increase.
var configured = []string{"compute_agent_certificate_expiry_time_seconds",
	"compute_agent_service_certificate_expiry_time_seconds", "compute_agent_deny_list_age_seconds",
	"compute_agent_deny_list_usable"}

// monitored are the services that the real Prometheus scrapes: all of them, a host with the fake
// driver, and a server that was made and deleted.
type monitored struct {
	t       *testing.T
	dir     string
	targets map[string]string // by job
	compute string            // endpoint
}

func newMonitored(t *testing.T) *monitored {
	t.Helper()
	m := &monitored{t: t, dir: t.TempDir(), targets: map[string]string{}}
	for _, job := range []string{"compute-agent", "compute-agent-placement",
		"compute-agent-api", "compute-agent-cell"} {
		m.targets[job] = testproc.FreeAddress(t)
	}
	placement, compute := testproc.FreeAddress(t), testproc.FreeAddress(t)
	m.compute = "http://" + compute + "/v2.1"
	m.serve([]string{"COMPUTE_AGENT_PLACEMENT_METRICS_LISTEN=" + m.targets["compute-agent-placement"]}, "placement",
		"placement", "serve", "--listen", placement)
	for _, name := range []string{"cell0", "cell1"} {
		metrics := ""
		if name == "cell1" {
			metrics = m.targets["compute-agent-cell"]
		}
		m.serve([]string{"COMPUTE_AGENT_CELL_METRICS_LISTEN=" + metrics}, name, "cells", "serve",
			"--name", name, "--listen", m.cell(name))
	}
	m.serve([]string{
		"COMPUTE_AGENT_PLACEMENT_CLIENT_URL=http://" + placement, "COMPUTE_AGENT_COMPUTE_API_METRICS_LISTEN=" +
			m.targets["compute-agent-api"],
		"COMPUTE_AGENT_COMPUTE_API_DISCOVER_HOSTS_INTERVAL=100ms",
	}, "api", "cells", "api", "--listen", compute)
	m.manage("create", "--name", "cell0", "--url", m.cell("cell0"), "--cell0")
	m.manage("create", "--name", "cell1", "--url", m.cell("cell1"))
	config := filepath.Join(m.dir, "agent.toml")
	testproc.Check(t, os.WriteFile(config, fmt.Appendf(nil, `
[agent]
host = "cn1"
[placement_client]
url = "http://%s"
[cell_client]
url = %q
[tracker]
update_resources_interval = "1s"
[metrics]
listen = %q
[plugins]
dir = %q
[drivers.fake.config]
nodes = [{name = "cn1", inventories = {VCPU = {total = 8}, MEMORY_MB = {total = 16000}, DISK_GB = {total = 100}}}]
instances = {}
`, placement, m.cell("cell1"), m.targets["compute-agent"], binaries.Dir()), 0o600))
	m.start(nil, "agent", "run", "--config", config)
	return m
}

func (m *monitored) cell(name string) string { return "unix://" + filepath.Join(m.dir, name+".sock") }

func (m *monitored) directories(name string) []string {
	return []string{"--state-dir", filepath.Join(m.dir, name), "--runtime-dir", filepath.Join(m.dir, "run-"+name)}
}

// start starts a service until the end of the test.
func (m *monitored) start(env []string, name string, args ...string) *testproc.Process {
	m.t.Helper()
	cmd := binaries.Command("compute-agent", slices.Concat(args, m.directories(name))...)
	cmd.Env = slices.Concat(cmd.Env, env)
	p := testproc.Start(m.t, name, cmd)
	p.KilledBy(m.t)
	return p
}

// serve starts a service that others ask, and waits until it answers.
func (m *monitored) serve(env []string, name string, args ...string) {
	m.t.Helper()
	m.start(append(env, "COMPUTE_AGENT_LOG_FORMAT=json"), name, args...).Await(m.t, 0, "serving the admin socket")
}

// ask sends a request to the compute API, and reads its answer into out unless that is nil.
func (m *monitored) ask(method, path, body string, out any) int {
	m.t.Helper()
	r, err := http.NewRequestWithContext(m.t.Context(), method, m.compute+path, strings.NewReader(body))
	testproc.Check(m.t, err)
	r.Header.Set("X-Auth-Token", "admin")
	r.Header.Set("OpenStack-API-Version", "compute 2.69")
	r.Header.Set("Content-Type", "application/json")
	return answer(m.t, r, out)
}

// answer sends a request, and reads the answer.
func answer(t *testing.T, r *http.Request, out any) int {
	t.Helper()
	resp := testproc.Try(http.DefaultClient.Do(r)).Or(t)
	defer func() { _ = resp.Body.Close() }()
	if out != nil && resp.StatusCode < 300 {
		testproc.Check(t, json.NewDecoder(resp.Body).Decode(out))
	}
	return resp.StatusCode
}

// manage runs a command of cells manage.
func (m *monitored) manage(words ...string) {
	m.t.Helper()
	words = slices.Concat([]string{"cells", "manage"}, words, m.directories("api"))
	if out, code := binaries.Run(m.t, "compute-agent", words...); code != 0 {
		m.t.Fatalf("compute-agent %v ended with %d:\n%s", words, code, out)
	}
}

// use makes a server and deletes it.
func (m *monitored) use() {
	m.t.Helper()
	m.ask(http.MethodPost, "/flavors", `{"flavor": {"id": "1", "name": "tiny", "vcpus": 1, "ram": 512, "disk": 1}}`,
		nil)
	testproc.Eventually(m.t, testproc.Patience, "the host reports its node", testproc.True(func() bool {
		var known struct{ Services []any }
		m.ask(http.MethodGet, "/os-services", "", &known)
		return len(known.Services) == 1
	}))
	m.manage("discover-hosts")
	var made struct{ Server struct{ ID, Status string } }
	if code := m.ask(http.MethodPost, "/servers",
		`{"server": {"name": "one", "flavorRef": "1", "imageRef": "", "networks": "none"}}`,
		&made); code != http.StatusAccepted {
		m.t.Fatalf("POST /servers: %d", code)
	}
	path := "/servers/" + made.Server.ID
	testproc.Eventually(m.t, testproc.Patience, "the server is active", testproc.True(func() bool {
		m.ask(http.MethodGet, path, "", &made)
		return made.Server.Status == "ACTIVE"
	}))
	m.ask(http.MethodDelete, path, "", nil)
	testproc.Eventually(m.t, testproc.Patience, "the server is gone", testproc.True(func() bool {
		return m.ask(http.MethodGet, path, "", nil) == http.StatusNotFound
	}))
}

// prometheus is a real Prometheus, of Debian's package.
type prometheus struct {
	t        *testing.T
	endpoint string
}

// newPrometheus starts it with the configuration in docs/metrics.md, but for targets, intervals and
// the place of the rules.
func (m *monitored) newPrometheus() *prometheus {
	m.t.Helper()
	if _, err := exec.LookPath("prometheus"); err != nil {
		m.t.Fatalf("%v: run `tools/packages.sh real`, which installs Debian's package prometheus", err)
	}
	var config map[string]any
	testproc.Check(m.t, yaml.Unmarshal([]byte(scrapeConfiguration(m.t)), &config))
	here := testproc.Try(os.Getwd()).Or(m.t)
	config["global"] = map[string]string{"scrape_interval": "1s", "evaluation_interval": "1s"}
	config["rule_files"] = []string{filepath.Join(here, "../../observability/prometheus", "*.yaml")}
	for _, scraped := range config["scrape_configs"].([]any) {
		job := scraped.(map[string]any)
		target := m.targets[job["job_name"].(string)]
		if target == "" {
			m.t.Fatalf("no service is of the job %v", job["job_name"])
		}
		job["static_configs"].([]any)[0].(map[string]any)["targets"] = []string{target}
	}
	file := filepath.Join(m.dir, "prometheus.yml")
	writeYAML(m.t, file, config)
	address := testproc.FreeAddress(m.t)
	cmd := exec.Command("prometheus", "--config.file", file, "--storage.tsdb.path", filepath.Join(m.dir, "series"),
		"--web.listen-address", address) // KilledBy ends it
	p := testproc.Start(m.t, "prometheus", cmd)
	p.KilledBy(m.t)
	p.Await(m.t, 0, "Server is ready to receive web requests")
	return &prometheus{m.t, "http://" + address}
}

// get reads data of Prometheus' API.
func (p *prometheus) get(path string, data any) {
	p.t.Helper()
	r, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, p.endpoint+"/api/v1/"+path, nil)
	testproc.Check(p.t, err)
	envelope := struct{ Data any }{data}
	if code := answer(p.t, r, &envelope); code != http.StatusOK {
		p.t.Fatalf("%s: %d", path, code)
	}
}

// has are the names of all series, with a label for each only if selected.
func (p *prometheus) has() map[string]bool {
	p.t.Helper()
	var names []string
	p.get("label/__name__/values?match[]="+url.QueryEscape(`{__name__=~".+"}`), &names)
	all := map[string]bool{}
	for _, name := range names {
		all[name] = true
	}
	return all
}

// TestPrometheus: a real Prometheus with our configuration and rules scrapes all services,
// evaluates every rule without an error, fires no alert, and has what rules and dashboards use.
func TestPrometheus(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	m := newMonitored(t)
	m.use()
	p := m.newPrometheus()

	var targets struct {
		ActiveTargets []struct {
			Labels    map[string]string
			Health    string
			LastError string
		}
	}
	testproc.Eventually(t, testproc.Patience, "all targets are up", func() error {
		targets.ActiveTargets = nil
		p.get("targets", &targets)
		up := 0
		for _, target := range targets.ActiveTargets {
			if target.Health == "up" {
				up++
			}
		}
		if up != len(m.targets) {
			return fmt.Errorf("%+v", targets)
		}
		return nil
	})
	testproc.Eventually(t, testproc.Patience, "all rules have been evaluated since",
		func() error { return p.rules(len(allRules(t))) })

	needs := map[string]string{} // what uses a series
	for _, r := range allRules(t) {
		for _, s := range selectors(r.Expr) {
			needs[s.name] = r.name()
		}
	}
	for name, d := range dashboards(t) {
		for _, panel := range d.Panels {
			for _, q := range panel.Targets {
				for _, s := range selectors(grafana.Replace(q.Expr)) {
					needs[s.name] = name + ": " + panel.Title
				}
			}
		}
	}
	missing := func() (list []string) {
		has, recorded := p.has(), recordings(t)
		for _, name := range slices.Sorted(maps.Keys(needs)) {
			if !has[name] && !slices.Contains(configured, name) && !recorded[name] {
				list = append(list, name+", which "+needs[name]+" uses")
			}
		}
		return list
	}
	testproc.Eventually(t, testproc.Patience, "there is every series that rules and dashboards use", func() error {
		if list := missing(); len(list) > 0 {
			return fmt.Errorf("%d are not there:\n%s", len(list), strings.Join(list, "\n"))
		}
		return nil
	})
	all := reference(t)
	for _, name := range configured {
		if needs[name] == "" || !strings.Contains(all[name].help, "Only w") {
			t.Errorf("%s is used by %q, and means: %s", name, needs[name], all[name].help)
		}
	}
}

// rules is an error unless Prometheus has so many rules, evaluated all of them without an error and
// fires no alert.
func (p *prometheus) rules(n int) error {
	p.t.Helper()
	var loaded struct {
		Groups []struct {
			Rules []struct {
				Name, Health, LastError, State string
				LastEvaluation                 time.Time
			}
		}
	}
	p.get("rules", &loaded)
	found, waiting := 0, 0
	for _, g := range loaded.Groups {
		for _, r := range g.Rules {
			found++
			switch {
			case r.Health == "unknown":
				waiting++
			case r.Health != "ok" || r.LastError != "":
				p.t.Errorf("rule %s is %s: %s", r.Name, r.Health, r.LastError)
			case r.State == "firing":
				p.t.Errorf("alert %s fires", r.Name)
			}
		}
	}
	if found != n {
		p.t.Fatalf("%d rules are loaded, of %d", found, n)
	}
	if waiting > 0 {
		return fmt.Errorf("%d of %d rules are not evaluated yet", waiting, n)
	}
	return nil
}

// scrapeConfiguration is the configuration in docs/metrics.md.
func scrapeConfiguration(t *testing.T) string {
	t.Helper()
	page := testproc.Try(os.ReadFile("../../docs/metrics.md")).Or(t)
	found := regexp.MustCompile("(?s)```yaml\n(.*?)```\n").FindSubmatch(page)
	if found == nil {
		t.Fatal("docs/metrics.md has no configuration")
	}
	return string(found[1])
}
