// SPDX-License-Identifier: Apache-2.0

package drivertest_test

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/compute-agent/compute-agent/plugins/drivertest"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// summaryLine is the last line of `compute-agent plugin test`.
var summaryLine = regexp.MustCompile(`(\d+) checks: (\d+) passed, (\d+) failed, (\d+) not run\.`)

// TestDocsCountTheChecks: what the documentation shows of the suite has as many checks as it has.
func TestDocsCountTheChecks(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	all := fmt.Sprint(len(drivertest.Suite()))
	for _, page := range []string{"../../docs/writing-a-driver.md", "../../examples/driver-python/README.md"} {
		text := testproc.Try(os.ReadFile(page)).Or(t)
		found := summaryLine.FindAllStringSubmatch(string(text), -1)
		if len(found) == 0 {
			t.Errorf("%s does not show the summary of the suite", page)
		}
		for _, m := range found {
			sum := 0
			for _, part := range m[2:] {
				sum += testproc.Try(strconv.Atoi(part)).Or(t)
			}
			if m[1] != all || fmt.Sprint(sum) != all {
				t.Errorf("%s: %q, but the suite has %s checks", page, m[0], all)
			}
		}
	}
}
