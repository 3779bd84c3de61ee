// SPDX-License-Identifier: Apache-2.0

package cellwire_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/cells/cellwire"
)

func TestSortColumnsHaveTypes(t *testing.T) {
	for _, column := range cellwire.SortColumns {
		var good, bad any = "text", int64(1)
		if cellwire.Integer(column) {
			good, bad = bad, good
		}
		for value, want := range map[any]bool{good: true, bad: false, 1.5: false} {
			err := cellwire.ServerQuery{Limit: 1, Sort: []cellwire.SortKey{{Key: column}},
				After: cellwire.Key{value, "u"}}.Check()
			if (err == nil) != want {
				t.Errorf("after %v (%s) in %s: %v", value, fmt.Sprintf("%T", value), column, err)
			}
		}
	}
}

func TestPatternsAreBounded(t *testing.T) {
	for pattern, good := range map[string]bool{
		"": true, "^web-[0-9]{1,5}\\.example$": true, "web|db|cache": true, "\\pL+": true, ".{0,400}": true,
		strings.Repeat("a", 900):  true,
		strings.Repeat("a", 1025): false, "(": false,
		strings.Repeat(".{0,1000}", 100): false, "((a?){30}){30}b(a?){300}": false, strings.Repeat("\\pL", 300): false,
	} {
		if _, err := cellwire.Pattern(pattern); (err == nil) != good {
			t.Errorf("pattern %.40q: %v", pattern, err)
		}
	}
}
