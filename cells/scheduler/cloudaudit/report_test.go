// SPDX-License-Identifier: Apache-2.0

package cloudaudit

import (
	"os"
	"regexp"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestAuditTable: the documentation says of each kind whether it is repaired.
func TestAuditTable(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	text := string(testproc.Try(os.ReadFile("../../../docs/cells.md")).Or(t))
	declared := regexp.MustCompile(`(?m)^\tFinding\w+ +FindingKind += "(.+)"$`).
		FindAllStringSubmatch(string(testproc.Try(os.ReadFile("report.go")).Or(t)), -1)
	if len(declared) < len(manual) {
		t.Errorf("%d kinds are declared, and %d have a reason or a repair", len(declared), len(manual))
	}
	for _, kind := range declared {
		if _, said := manual[FindingKind(kind[1])]; !said {
			t.Errorf("kind %s is not in the map of what is repaired", kind[1])
		}
	}
	for kind, why := range manual {
		repaired := "no: "
		if why == "" {
			repaired = "yes: "
		}
		row := regexp.MustCompile("(?m)^\\| `" + string(kind) + "` \\| .* \\| " + repaired)
		if !row.MatchString(text) {
			t.Errorf("docs/cells.md has no row of %s that says %q", kind, repaired)
		}
	}
}
