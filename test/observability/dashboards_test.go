// SPDX-License-Identifier: Apache-2.0

package observability_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// dashboard is what the tests read of a dashboard.
type dashboard struct {
	UID           string `json:"uid"`
	Title         string `json:"title"`
	SchemaVersion int    `json:"schemaVersion"`
	Links         []struct {
		URL string `json:"url"`
	} `json:"links"`
	Templating struct {
		List []struct {
			Name       string `json:"name"`
			Type       string `json:"type"`
			Definition string `json:"definition"`
			AllValue   string `json:"allValue"`
		} `json:"list"`
	} `json:"templating"`
	Panels []dashboardPanel `json:"panels"`
}

type dashboardPanel struct {
	ID          int    `json:"id"`
	Type        string `json:"type"`
	Title       string `json:"title"`
	Description string `json:"description"`
	GridPos     struct {
		X, Y, W, H int
	} `json:"gridPos"`
	Targets []struct {
		RefID string `json:"refId"`
		Expr  string `json:"expr"`
	} `json:"targets"`
}

// dashboards are all dashboards by file.
func dashboards(t *testing.T) map[string]dashboard {
	t.Helper()
	names, err := filepath.Glob("../../observability/grafana/*.json")
	if err != nil || len(names) != 3 {
		t.Fatal(err, names)
	}
	all := map[string]dashboard{}
	for _, name := range names {
		content, err := os.ReadFile(name)
		testproc.Check(t, err)
		var d dashboard
		testproc.Checkf(t, json.Unmarshal(content, &d), "%s", name)
		all[name] = d
	}
	return all
}

// grafana replaces Grafana's own variables as Grafana does.
var grafana = strings.NewReplacer("$__rate_interval", "5m", "$__interval", "1m", "$__range", "6h")

// TestDashboards: each dashboard has the variables and links that all have, and each panel a
// description and a place of its own. Links lead to pages and sections that exist.
func TestDashboards(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	uids := map[string]bool{}
	for name, d := range dashboards(t) {
		if d.UID == "" || d.Title == "" || d.SchemaVersion == 0 || uids[d.UID] || len(d.Panels) < 20 {
			t.Errorf("%s: uid %q, title %q, schema version %d, %d panels",
				name, d.UID, d.Title, d.SchemaVersion, len(d.Panels))
		}
		uids[d.UID] = true
		variables := []string{}
		for _, v := range d.Templating.List {
			variables = append(variables, v.Name)
			if v.Type == "query" && v.AllValue != ".*" {
				t.Errorf("%s: all values of %s do not match series without the label", name, v.Name)
			}
		}
		if want := []string{"datasource", "cluster", "instance"}; !slices.Equal(variables, want) {
			t.Errorf("%s has the variables %v, not %v", name, variables, want)
		}
		runbooks := 0
		for _, l := range d.Links {
			if page, is := strings.CutPrefix(l.URL, docs); is {
				if _, err := os.Stat("../../docs/" + page); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				runbooks += strings.Count(page, "runbooks/")
			}
		}
		testproc.Equal(t, runbooks, 1, "%s has %d links to runbooks", name)
		checkPanels(t, name, d.Panels)
	}
}

func checkPanels(t *testing.T, name string, panels []dashboardPanel) {
	t.Helper()
	taken, ids, titles := map[[2]int]string{}, map[int]bool{}, map[string]bool{}
	section := ""
	for _, p := range panels {
		if p.Type == "row" {
			section = p.Title
		} else if p.Description == "" || len(p.Targets) == 0 {
			t.Errorf("%s: panel %q has no description or no query", name, p.Title)
		}
		if title := section + "/" + p.Title; p.Title == "" || titles[title] || p.ID == 0 || ids[p.ID] {
			t.Errorf("%s: panel %d %q has the id or title of another", name, p.ID, title)
		}
		titles[section+"/"+p.Title], ids[p.ID] = true, true
		g := p.GridPos
		if g.W < 1 || g.H < 1 || g.X < 0 || g.X+g.W > 24 {
			t.Errorf("%s: panel %q is at %+v", name, p.Title, g)
		}
		for x := g.X; x < g.X+g.W; x++ {
			for y := g.Y; y < g.Y+g.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" {
					t.Errorf("%s: panels %q and %q overlap", name, other, p.Title)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
}

// TestDashboardsUseExistingMetrics: every metric, label and value in a query is in the reference or
// is recorded by a rule, and promtool parses the query. Every recording rule is used.
func TestDashboardsUseExistingMetrics(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	all, recorded := reference(t), recordings(t)
	used := map[string]bool{}
	queries := []any{}
	for name, d := range dashboards(t) {
		for _, p := range d.Panels {
			for _, q := range p.Targets {
				where := name + ": " + p.Title
				expr := grafana.Replace(q.Expr)
				checkExpr(t, where, expr, all, recorded)
				for _, s := range selectors(expr) {
					used[s.name] = true
					if !slices.ContainsFunc(s.matchers,
						func(m [2]string) bool { return m == [2]string{"cluster", "$cluster"} }) {
						t.Errorf("%s: %s is not restricted to $cluster", where, s.name)
					}
				}
				queries = append(queries,
					map[string]string{"record": "query:" + strconv.Itoa(len(queries)), "expr": expr})
			}
		}
	}
	for _, r := range slices.Sorted(maps.Keys(recorded)) {
		if !used[r] {
			t.Errorf("no dashboard uses the recording rule %s", r)
		}
	}
	content, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "queries", "rules": queries}}})
	testproc.Check(t, err)
	file := filepath.Join(t.TempDir(), "queries.yaml")
	testproc.Check(t, os.WriteFile(file, content, 0o600))
	promtool(t, "check", "rules", file)
}
