// SPDX-License-Identifier: Apache-2.0

package telemetry_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/compute-agent/compute-agent/internal/health"
)

// families returns the agent's metrics by name, each with its labels.
func (s *scene) families() map[string][]string {
	s.t.Helper()
	out := map[string][]string{}
	for line := range strings.Lines(s.page()) {
		if name, ok := strings.CutPrefix(line, "# TYPE compute_agent_"); ok {
			name, _, _ = strings.Cut(name, " ")
			out["compute_agent_"+name] = nil
		}
	}
	sample := regexp.MustCompile(`(?m)^(compute_agent_\w+?)(_bucket|_sum|_count)?(?:\{(.*)\})? \S+$`)
	for _, m := range sample.FindAllStringSubmatch(s.page(), -1) {
		for _, l := range regexp.MustCompile(`(\w+)="[^"]*"`).FindAllStringSubmatch(m[3], -1) {
			if !slices.Contains(out[m[1]], l[1]) && l[1] != "le" {
				out[m[1]] = append(out[m[1]], l[1])
			}
		}
		slices.Sort(out[m[1]])
	}
	return out
}

// TestOperatorsGuideListsAllMetrics compares the guide's table with the exported metrics.
func TestOperatorsGuideListsAllMetrics(t *testing.T) {
	s := newScene(t)
	s.day()
	families := s.families()
	doc, err := os.ReadFile("../../../docs/operators.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]bool{}
	for _, m := range regexp.MustCompile("`(compute_agent_\\w+)(?:\\{([\\w,]*)\\})?`").FindAllStringSubmatch(string(doc), -1) {
		if m[1] == "compute_agent_audit_records_total" { // of the services, which the guide is about as well
			continue
		}
		documented[m[1]] = true
		labels, known := families[m[1]]
		want := strings.FieldsFunc(m[2], func(r rune) bool { return r == ',' })
		slices.Sort(want)
		if !known || !slices.Equal(labels, want) {
			t.Errorf("the guide documents %s%v; its labels are %v", m[1], want, labels)
		}
	}
	for name := range families {
		if !documented[name] {
			t.Errorf("the guide does not document %s", name)
		}
	}
}

// TestExampleRulesUseExistingMetrics checks every metric, label and code in the example.
func TestExampleRulesUseExistingMetrics(t *testing.T) {
	s := newScene(t)
	s.day()
	families := s.families()
	content, err := os.ReadFile("../../../docs/examples/prometheus-rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Record, Expr, For string
				Labels, Annotations      map[string]string
			}
		}
	}
	dec := yaml.NewDecoder(strings.NewReader(string(content)))
	dec.KnownFields(true)
	if err := dec.Decode(&file); err != nil || len(file.Groups) == 0 || file.Groups[0].Name != "compute-agent" || len(file.Groups[0].Rules) < 5 {
		t.Fatalf("%v: %+v", err, file)
	}
	use := regexp.MustCompile(`(compute_agent_\w+)(?:\{([^}]*)\})?`)
	for _, rule := range file.Groups[0].Rules {
		if (rule.Alert == "") == (rule.Record == "") || (rule.Alert != "" && rule.Annotations["summary"] == "") {
			t.Errorf("%+v is incomplete", rule)
		}
		used := use.FindAllStringSubmatch(rule.Expr, -1)
		if len(used) == 0 && !strings.HasPrefix(rule.Expr, "up{") {
			t.Errorf("%s%s uses none of the agent's metrics", rule.Alert, rule.Record)
		}
		for _, m := range used {
			labels, known := families[m[1]]
			if !known {
				t.Errorf("%s%s: there is no %s", rule.Alert, rule.Record, m[1])
			}
			for _, l := range regexp.MustCompile(`(\w+)="([^"]*)"`).FindAllStringSubmatch(m[2], -1) {
				if !slices.Contains(labels, l[1]) {
					t.Errorf("%s: %s has no label %s", rule.Alert, m[1], l[1])
				}
				if l[1] == "code" {
					health.Define(health.Code(l[2])) // panics if unknown
				}
				if l[1] == "severity" && !slices.Contains(health.Severities(), health.Severity(l[2])) {
					t.Errorf("%s: there is no severity %s", rule.Alert, l[2])
				}
			}
		}
	}
}
