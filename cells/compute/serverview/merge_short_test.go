// SPDX-License-Identifier: Apache-2.0

package serverview

import (
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestShortPages: a cell whose answer would be too long gives fewer rows than it is asked for, and
// the rest when it is asked again. In a bubble none seems to be slow.
func TestShortPages(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, testShortPages)
}

func testShortPages(t *testing.T) {
	short := func(_ int, p cellwire.ServerPage) cellwire.ServerPage {
		if len(p.Rows) > 7 {
			p.Rows, p.More = p.Rows[:7], true
		}
		return p
	}
	a, b := &listCell{rows: rowsOf("a", 50, 0, 2), lie: short}, &listCell{rows: rowsOf("b", 50, 1, 2)}
	g, cells := gathererOf(a, b)
	q := cellwire.ServerQuery{Limit: 90, Sort: byCreation}
	got := testproc.Try(mergeServers(t.Context(), g, cells, q)).Or(t)
	want := naiveMerge([][]cellwire.Row{a.rows, b.rows}, q)
	if diff := cmp.Diff(want.Rows, got.Rows); diff != "" || !got.More || len(got.Down) != 0 {
		t.Errorf("more %v, down %v: %s", got.More, got.Down, diff)
	}
	if a.batches != 7 || b.batches != 1 { // the last rows of a are not needed to fill the page
		t.Errorf("asked %d and %d times", a.batches, b.batches)
	}
}
