// SPDX-License-Identifier: Apache-2.0

package observability_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/internal/health"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// docs is where a browser finds the directory docs.
const docs = "https://github.com/compute-agent/compute-agent/blob/main/docs/"

// parts are what a section of a runbook says, in this order.
var parts = []string{"Means", "Still works", "Look at", "Do", "Escalate"}

var (
	heading = regexp.MustCompile("(?m)^## `?([\\w-]+)`?$")
	part    = regexp.MustCompile(`(?m)^- \*\*([\w ]+):\*\* \S`)
)

// sections are the texts of the sections of a page of the runbooks by name.
func sections(t *testing.T, page string) map[string]string {
	t.Helper()
	content, err := os.ReadFile("../../docs/runbooks/" + page)
	testproc.Check(t, err)
	all := map[string]string{}
	found := heading.FindAllSubmatchIndex(content, -1)
	for i, at := range found {
		end := len(content)
		if i+1 < len(found) {
			end = found[i+1][0]
		}
		name := string(content[at[2]:at[3]])
		if all[name] != "" {
			t.Errorf("%s has two sections %s", page, name)
		}
		all[name] = string(content[at[1]:end])
	}
	return all
}

// TestRunbooks: each alert and each condition has a section, with all of its parts, and there are
// no others. Each alert links to its own.
func TestRunbooks(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	pages := map[string]map[string]string{}
	for _, page := range []string{"agent.md", "services.md", "placement.md", "compute.md", "conditions.md"} {
		pages[page] = sections(t, page)
		for name, text := range pages[page] {
			got := []string{}
			for _, m := range part.FindAllStringSubmatch(text, -1) {
				got = append(got, m[1])
			}
			testproc.EqualList(t, got, parts, "%s: %s says %q", page, name)
		}
	}
	wanted := map[string]int{"conditions.md": len(health.Definitions())}
	for _, d := range health.Definitions() {
		if pages["conditions.md"][string(d.Code)] == "" {
			t.Errorf("conditions.md has no section %s", d.Code)
		}
		testproc.Equal(t, d.Runbook(), docs+"runbooks/conditions.md#"+string(d.Code), "the runbook of %s is %s", d.Code)
	}
	for _, r := range allRules(t) {
		if r.Alert == "" {
			continue
		}
		page, anchor, _ := strings.Cut(strings.TrimPrefix(r.Annotations["runbook_url"], docs+"runbooks/"), "#")
		if page == "conditions.md" && anchor == "{{ $labels.code }}" {
			page = "agent.md" // the conditions themselves have sections
		} else if anchor != strings.ToLower(r.Alert) {
			t.Errorf("%s has the runbook %s", r.Alert, r.Annotations["runbook_url"])
		}
		if wanted[page]++; pages[page][r.Alert] == "" {
			t.Errorf("docs/runbooks/%s has no section %s", page, r.Alert)
		}
	}
	for page, sections := range pages {
		if len(sections) != wanted[page] {
			t.Errorf("%s has %d sections for %d alerts or conditions", page, len(sections), wanted[page])
		}
	}
}
