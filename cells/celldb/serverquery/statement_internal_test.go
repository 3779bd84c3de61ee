// SPDX-License-Identifier: Apache-2.0

package serverquery

import (
	"testing"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestSortExpressions: each column that servers can be sorted by is one here, of the type that it
// has in a key.
func TestSortExpressions(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	if len(sortExpressions) != len(cellwire.SortColumns) {
		t.Errorf("%d expressions for %d columns", len(sortExpressions), len(cellwire.SortColumns))
	}
	for _, column := range cellwire.SortColumns {
		if e := sortExpressions[column]; e == "" || e == "''" && cellwire.Integer(column) {
			t.Errorf("%s is sorted by %q", column, e)
		}
	}
}
