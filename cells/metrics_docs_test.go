// SPDX-License-Identifier: Apache-2.0

package cells

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/compute-agent/compute-agent/internal/auditlog"
)

// families are the metrics of both kinds of processes by name, each with the values of its labels.
func families(t *testing.T) map[string]map[string][]string {
	t.Helper()
	audit, err := auditlog.Open(auditlog.Options{File: filepath.Join(t.TempDir(), "audit.log")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = audit.Close() }()
	audited := newAPIMetrics(nil)
	audited.MustRegister(audit.Collector())
	text := metricsText(t, apiDay()) + metricsText(t, cellDay(t)) + metricsText(t, audited)
	out := map[string]map[string][]string{}
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (compute_agent_\w+) `).FindAllStringSubmatch(text, -1) {
		out[m[1]] = map[string][]string{}
	}
	for _, m := range regexp.MustCompile(`(?m)^(compute_agent_\w+?)(?:_bucket|_sum|_count)?(?:\{(.*)\})? \S+$`).FindAllStringSubmatch(text, -1) {
		for _, l := range regexp.MustCompile(`(\w+)="([^"]*)"`).FindAllStringSubmatch(m[2], -1) {
			if l[1] != "le" {
				out[m[1]][l[1]] = append(out[m[1]][l[1]], l[2])
			}
		}
	}
	return out
}

// TestMetricNamesAreUnique: a metric of the compute API or of a cell has no name that one of the
// agent's has, which mean something else.
func TestMetricNamesAreUnique(t *testing.T) {
	agents, err := os.ReadFile("../internal/agent/telemetry/testdata/metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	for name := range families(t) {
		if strings.Contains(string(agents), "# TYPE "+name+" ") {
			t.Errorf("%s is the agent's", name)
		}
	}
}

// TestDocumentation: the page about cells names every metric with its labels, and none that there
// is not.
func TestDocumentation(t *testing.T) {
	known := families(t)
	doc, err := os.ReadFile("../docs/cells.md")
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]bool{}
	for _, m := range regexp.MustCompile("`(compute_agent_\\w+)(?:\\{([\\w,]*)\\})?`").FindAllStringSubmatch(string(doc), -1) {
		labels, is := known[m[1]]
		if !is {
			t.Errorf("the page names %s, which there is not", m[1])
		}
		said := strings.FieldsFunc(m[2], func(r rune) bool { return r == ',' })
		if len(said) == 0 && told[m[1]] {
			continue // once more, without them
		}
		told[m[1]] = true
		if len(said) != len(labels) || slices.ContainsFunc(said, func(l string) bool { return labels[l] == nil }) {
			t.Errorf("the page says %s%v; it has %v", m[1], said, labels)
		}
	}
	for name := range known {
		if !told[name] {
			t.Errorf("the page does not name %s", name)
		}
	}
}

// closed are labels whose values are all on the pages of these tests.
var closed = []string{"outcome", "kind", "state", "disabled", "operation", "vm_state"}

// TestExampleRules: every metric, label and value in the example is one that there is.
func TestExampleRules(t *testing.T) {
	known := families(t)
	content, err := os.ReadFile("../docs/examples/prometheus-rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	type rule struct {
		Alert, Record, Expr, For string
		Labels, Annotations      map[string]string
	}
	var file struct {
		Groups []struct {
			Name  string
			Rules []rule
		}
	}
	if err := yaml.Unmarshal(content, &file); err != nil {
		t.Fatal(err)
	}
	var rules []rule
	for _, g := range file.Groups {
		if g.Name == "compute-agent-cells" {
			rules = g.Rules
		}
	}
	if len(rules) < 5 {
		t.Fatalf("there are %d rules", len(rules))
	}
	use := regexp.MustCompile(`(compute_agent_\w+?)(?:_bucket)?\b(?:\{([^}]*)\})?`)
	for _, r := range rules {
		if r.Alert == "" || r.Annotations["summary"] == "" || r.Labels["severity"] == "" {
			t.Errorf("%+v is not whole", r)
		}
		used := use.FindAllStringSubmatch(r.Expr, -1)
		if len(used) == 0 && !strings.HasPrefix(r.Expr, "up{") {
			t.Errorf("%s asks for no metrics", r.Alert)
		}
		for _, m := range used {
			labels, is := known[m[1]]
			if !is {
				t.Errorf("%s: there is no %s", r.Alert, m[1])
			}
			for _, l := range regexp.MustCompile(`(\w+)=~?"([^"]*)"`).FindAllStringSubmatch(m[2], -1) {
				if labels[l[1]] == nil {
					t.Errorf("%s: %s has no label %s", r.Alert, m[1], l[1])
				}
				for value := range strings.SplitSeq(l[2], "|") {
					if slices.Contains(closed, l[1]) && !slices.Contains(labels[l[1]], value) {
						t.Errorf("%s: %s never has %s=%q", r.Alert, m[1], l[1], value)
					}
				}
			}
		}
	}
}
