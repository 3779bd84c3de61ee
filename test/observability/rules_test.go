// SPDX-License-Identifier: Apache-2.0

package observability_test

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/compute-agent/compute-agent/internal/health"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// ruleFiles are the files of rules, each with the cases of its alerts.
var ruleFiles = map[string]map[string]alertCase{
	"../../observability/prometheus/agent.yaml":     agentCases,
	"../../observability/prometheus/placement.yaml": placementCases,
	"../../observability/prometheus/compute.yaml":   computeCases,
}

// rule is one rule of a file.
type rule struct {
	Alert       string            `yaml:",omitempty"`
	Record      string            `yaml:",omitempty"`
	Expr        string            `yaml:"expr"`
	For         string            `yaml:",omitempty"`
	Labels      map[string]string `yaml:",omitempty"`
	Annotations map[string]string `yaml:",omitempty"`
}

func (r rule) name() string { return r.Alert + r.Record }

// rules are the rules of a file.
func rules(t *testing.T, file string) (all []rule) {
	t.Helper()
	content, err := os.ReadFile(file)
	testproc.Check(t, err)
	var parsed struct {
		Groups []struct {
			Name  string
			Rules []rule
		}
	}
	dec := yaml.NewDecoder(bytes.NewReader(content))
	dec.KnownFields(true)
	testproc.Checkf(t, dec.Decode(&parsed), "%s", file)
	for _, g := range parsed.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) < 10 {
		t.Fatalf("%s has %d rules", file, len(all))
	}
	return all
}

// allRules are the rules of all files.
func allRules(t *testing.T) (all []rule) {
	t.Helper()
	for _, file := range slices.Sorted(maps.Keys(ruleFiles)) {
		all = append(all, rules(t, file)...)
	}
	return all
}

// promtool runs Prometheus' tool, of Debian's package prometheus.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "promtool", args...).
		CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		t.Fatalf("%v: run `tools/packages.sh real`, which installs Debian's package prometheus", err)
	}
	if err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestRulesAreValid(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	promtool(t, append([]string{"check", "rules", "--lint-fatal"}, slices.Sorted(maps.Keys(ruleFiles))...)...)
}

// TestScrapeConfiguration: Prometheus accepts the configuration in docs/metrics.md, and its jobs
// are those that the rules select.
func TestScrapeConfiguration(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	config := scrapeConfiguration(t)
	file := filepath.Join(t.TempDir(), "prometheus.yml")
	testproc.Check(t, os.WriteFile(file, []byte(config), 0o600))
	promtool(t, "check", "config", "--syntax-only", file)
	for _, r := range allRules(t) {
		for _, s := range selectors(r.Expr) {
			for _, m := range s.matchers {
				if m[0] == "job" && m[1] != "compute-agent.*" && !strings.Contains(config, "job_name: "+m[1]+"\n") {
					t.Errorf("%s selects the job %s, which docs/metrics.md does not configure", r.name(), m[1])
				}
			}
		}
	}
}

// selector is a metric in an expression, with its matchers.
type selector struct {
	name     string
	matchers [][2]string // label, value
}

var (
	grouping = regexp.MustCompile(`\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)`)
	braces   = regexp.MustCompile(`\{((?:[^{}"]|"[^"]*")*)\}`)
	brackets = regexp.MustCompile(`\[[^\]]*\]`)
	matcher  = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"`)
	// word is an identifier, with the braces behind it, of which only the number is left.
	word     = regexp.MustCompile(`(?:^|[^\w:.$])([a-zA-Z_:][\w:]*)(?:\x00(1+)\x00)?`)
	keywords = []string{"and", "or", "unless", "offset",
		"bool", "by", "without", "on", "ignoring", "group_left", "group_right"}
)

// selectors are the metrics of an expression.
func selectors(expr string) (all []selector) {
	expr = brackets.ReplaceAllString(grouping.ReplaceAllString(expr, " "), "")
	var matchers []string
	expr = braces.ReplaceAllStringFunc(expr, func(in string) string {
		matchers = append(matchers, in)
		return "\x00" + strings.Repeat("1", len(matchers)) + "\x00"
	})
	for _, at := range word.FindAllStringSubmatchIndex(expr, -1) {
		name := expr[at[2]:at[3]]
		if strings.HasPrefix(strings.TrimSpace(expr[at[1]:]), "(") || slices.Contains(keywords, name) {
			continue // a function
		}
		s := selector{name: name}
		if at[4] >= 0 {
			for _, l := range matcher.FindAllStringSubmatch(matchers[at[5]-at[4]-1], -1) {
				s.matchers = append(s.matchers, [2]string{l[1], l[2]})
			}
		}
		all = append(all, s)
	}
	return all
}

func TestSelectors(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	got := selectors(`sum by (a, b) (rate(x_total{l="1",m=~"2|3"}[$__rate_interval])) > 0.5 * max_over_time(y[1h] ` +
		`offset 2d) and on (z) up == 1`)
	want := []selector{{"x_total", [][2]string{{"l", "1"}, {"m", "2|3"}}}, {name: "y"}, {name: "up"}}
	if !slices.EqualFunc(got, want,
		func(a, b selector) bool { return a.name == b.name && slices.Equal(a.matchers, b.matchers) }) {
		t.Errorf("%+v", got)
	}
}

// prometheusOwn are metrics that Prometheus and its library provide.
var prometheusOwn = regexp.MustCompile(`^(up|(go|process)_\w+)$`)

// checkExpr fails the test where an expression uses a metric, a label or a value that there is not.
func checkExpr(t *testing.T, where, expr string, all map[string]*metric, recorded map[string]bool) {
	t.Helper()
	used := selectors(expr)
	if len(used) == 0 {
		t.Errorf("%s uses no metric: %s", where, expr)
	}
	for _, s := range used {
		if prometheusOwn.MatchString(s.name) || recorded[s.name] {
			continue
		}
		m := find(all, s.name)
		if m == nil || m.kind == "histogram" && m.name == s.name {
			t.Errorf("%s: there is no series %s", where, s.name)
			continue
		}
		for _, l := range s.matchers {
			m.check(t, where, l[0], l[1])
			if l[0] == "code" && m.name == "compute_agent_conditions" {
				health.Define(health.Code(l[1])) // panics if unknown
			}
		}
	}
}

// recordings are the names of the recording rules.
func recordings(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, r := range allRules(t) {
		if r.Record != "" {
			names[r.Record] = true
		}
	}
	return names
}

// TestRulesUseExistingMetrics: every metric, label and value in a rule is in the reference. Names
// are unique.
func TestRulesUseExistingMetrics(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	all, recorded, seen := reference(t), recordings(t), map[string]bool{}
	for _, r := range allRules(t) {
		checkExpr(t, r.name(), r.Expr, all, recorded)
		if seen[r.name()] {
			t.Errorf("there are two rules %s", r.name())
		}
		seen[r.name()] = true
	}
}

// TestAlertsAreComplete: each alert says what is wrong, its effect, how bad it is, and where its
// runbook is. Only the summary has templates.
func TestAlertsAreComplete(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, r := range allRules(t) {
		if r.Alert == "" {
			continue
		}
		if r.Annotations["summary"] == "" || r.Annotations["description"] == "" ||
			strings.Contains(r.Annotations["description"], "{{") || len(r.Annotations) != 3 {
			t.Errorf("%s: annotations %v", r.Alert, r.Annotations)
		}
		if s := r.Labels["severity"]; s != string(health.Warning) &&
			s != string(health.Critical) || len(r.Labels) != 1 {
			t.Errorf("%s: labels %v", r.Alert, r.Labels)
		}
	}
}

// TestAlertsFire: in its case, each alert fires for what it is about, with the summary that an
// operator reads, and for nothing else; and it does not fire before.
func TestAlertsFire(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for file, cases := range ruleFiles {
		t.Run(filepath.Base(file), func(t *testing.T) {
			args, tested, dir := []string{"test", "rules"}, map[string]bool{}, t.TempDir()
			for _, r := range rules(t, file) {
				if r.Alert == "" {
					continue
				}
				c, is := cases[r.Alert]
				if tested[r.Alert] = true; !is || len(c.want) == 0 || len(c.series) <= len(c.want) {
					t.Errorf("%s has no case in which it fires for some series and not for others", r.Alert)
				}
				// A file with this rule alone: promtool evaluates all rules of a file each time.
				alone := filepath.Join(dir, r.Alert+".yaml")
				writeYAML(t, alone,
					map[string]any{"groups": []any{map[string]any{"name": "alone", "rules": []rule{r}}}})
				args = append(args, filepath.Join(dir, r.Alert+"-case.yaml"))
				writeYAML(t, args[len(args)-1], suite(alone, r, c))
			}
			for name := range cases {
				if !tested[name] {
					t.Errorf("a case is about %s, which is no alert of %s", name, file)
				}
			}
			promtool(t, args...)
		})
	}
}

func writeYAML(t *testing.T, file string, v any) {
	t.Helper()
	content := testproc.Try(yaml.Marshal(v)).Or(t)
	testproc.Check(t, os.WriteFile(file, content, 0o600))
}

// suite is a case as promtool reads it.
func suite(file string, r rule, c alertCase) map[string]any {
	if c.every == "" {
		c.every = "1m"
	}
	series, alerts := []any{}, []any{}
	for _, name := range slices.Sorted(maps.Keys(c.series)) {
		series = append(series, map[string]string{"series": name, "values": c.series[name]})
	}
	for _, labels := range slices.Sorted(maps.Keys(c.want)) {
		expected := map[string]string{"severity": r.Labels["severity"]}
		annotations := maps.Clone(r.Annotations)
		annotations["summary"] = c.want[labels]
		for _, l := range labelPair.FindAllStringSubmatch(labels, -1) {
			expected[l[1]] = l[2]
			annotations["runbook_url"] = strings.ReplaceAll(annotations["runbook_url"], "{{ $labels."+l[1]+" }}", l[2])
		}
		alerts = append(alerts, map[string]any{"exp_labels": expected, "exp_annotations": annotations})
	}
	test := map[string]any{
		"interval": c.every, "input_series": series,
		"alert_rule_test": []any{
			map[string]any{"eval_time": c.quiet, "alertname": r.Alert, "exp_alerts": []any{}},
			map[string]any{"eval_time": c.fires, "alertname": r.Alert, "exp_alerts": alerts},
		},
	}
	return map[string]any{"rule_files": []string{file}, "evaluation_interval": c.every, "tests": []any{test}}
}
