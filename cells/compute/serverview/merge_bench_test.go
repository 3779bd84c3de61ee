// SPDX-License-Identifier: Apache-2.0

package serverview

import (
	"fmt"
	"testing"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// pagesOf are full pages of cells whose rows alternate.
func pagesOf(cells, rows int) []cellwire.ServerPage {
	pages := make([]cellwire.ServerPage, cells)
	for c := range pages {
		for i := range rows {
			uuid := fmt.Sprintf("%04d-%04d", c, i)
			pages[c].Rows = append(pages[c].Rows,
				cellwire.Row{Server: cellwire.Server{UUID: uuid}, Key: cellwire.Key{int64(i*cells + c), uuid}})
		}
	}
	return pages
}

// BenchmarkMerge checks and merges the pages of 50 cells of 100 rows, all of them.
func BenchmarkMerge(b *testing.B) {
	pages := pagesOf(50, 100)
	query := cellwire.ServerQuery{Limit: 5000, Sort: []cellwire.SortKey{{Key: "created_at"}}}
	b.ReportAllocs()
	for b.Loop() {
		l := &serverMerge{query: query, order: keyOrderOf(query.Sort), batch: 100}
		for i, page := range pages {
			s := &cellSource{index: i}
			testproc.Check(b, l.order.checkPage(page, s, 100))
			s.addPage(page)
			l.sources = append(l.sources, s)
		}
		l.merge()
		if len(l.merged) != 5000 {
			b.Fatalf("%d rows", len(l.merged))
		}
	}
}
