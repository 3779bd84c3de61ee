// SPDX-License-Identifier: Apache-2.0

package drivertest_test

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/plugins/drivertest"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// summaryLine is the last line of `compute-agent plugin test`.
var summaryLine = regexp.MustCompile(`(\d+) checks: (\d+) passed, (\d+) failed, (\d+) not run\.`)

// TestDocsCountTheChecks: what the documentation shows of the suite has as many checks as it has,
// or as --run selects in the command above.
func TestDocsCountTheChecks(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, page := range []string{"../../docs/writing-a-driver.md", "../../docs/drivers.md",
		"../../examples/driver-python/README.md"} {
		text := string(testproc.Try(os.ReadFile(page)).Or(t))
		found := summaryLine.FindAllStringSubmatchIndex(text, -1)
		if len(found) == 0 {
			t.Errorf("%s does not show the summary of the suite", page)
		}
		for _, at := range found {
			shown := summaryLine.FindStringSubmatch(text[at[0]:at[1]])
			selected := ""
			if command := strings.LastIndex(text[:at[0]], "compute-agent plugin test"); command >= 0 {
				line, _, _ := strings.Cut(text[command:], "\n")
				if _, pattern, given := strings.Cut(line, "--run '"); given {
					selected, _, _ = strings.Cut(pattern, "'")
				}
			}
			chosen, all := regexp.MustCompile(selected), 0
			for _, c := range drivertest.Suite() {
				if chosen.MatchString(c.ID) {
					all++
				}
			}
			sum := 0
			for _, part := range shown[2:] {
				sum += testproc.Try(strconv.Atoi(part)).Or(t)
			}
			if shown[1] != fmt.Sprint(all) || sum != all {
				t.Errorf("%s: %q, but the suite has %d checks", page, shown[0], all)
			}
		}
	}
}
