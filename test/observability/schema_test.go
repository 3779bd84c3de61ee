// SPDX-License-Identifier: Apache-2.0

package observability_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	schema "github.com/grafana/grafana-foundation-sdk/go/dashboard"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestDashboardsFollowGrafanasSchema: all fields of dashboards, panels, their options and queries
// are Grafana's, with its types. Fields that are left out have Grafana's defaults, and are no
// mistakes, although the schema calls some of them required.
func TestDashboardsFollowGrafanasSchema(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	plugins.RegisterDefaultPlugins()
	for name := range dashboards(t) {
		content, err := os.ReadFile(name)
		testproc.Check(t, err)
		for _, mistake := range schemaMistakes(content) {
			t.Errorf("%s: %s", name, mistake)
		}
	}
	// The check finds what it is for.
	content := testproc.Try(os.ReadFile(filepath.Join("../../observability/grafana", "agents.json"))).Or(t)
	for right, wrong := range map[string]string{`"graphMode": "`: `"graphModes": "`,
		`"gridPos": {`: `"gridPosition": {`, `"expr": "`: `"expression": "`} {
		if bad := strings.Replace(string(content), right, wrong, 1); len(schemaMistakes([]byte(bad))) == 0 {
			t.Errorf("%s in place of %s is no mistake", wrong, right)
		}
	}
}

// schemaMistakes are what does not follow the schema in a dashboard.
func schemaMistakes(content []byte) (mistakes []string) {
	var d schema.Dashboard //nolint:staticcheck // dashboards are for Grafana 10, which reads this schema
	err := d.UnmarshalJSONStrict(content)
	if err == nil {
		err = d.Validate()
	}
	if err == nil {
		return nil
	}
	for mistake := range strings.Lines(err.Error()) {
		if !strings.Contains(mistake, "required field is missing from input") {
			mistakes = append(mistakes, strings.TrimSpace(mistake))
		}
	}
	return mistakes
}
