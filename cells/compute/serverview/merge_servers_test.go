// SPDX-License-Identifier: Apache-2.0

package serverview

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func check(t testproc.Running, want, got any) {
	t.Helper()
	if reflect.DeepEqual(want, got) { // a comparison for people takes fifty times as long
		return
	}
	testproc.Same(t, cmp.Diff(want, got, cmpopts.EquateEmpty()))
}

// mergeFrom lists and fails on an error.
func mergeFrom(t *testing.T, q cellwire.ServerQuery, fakes ...*listCell) mergedServers {
	t.Helper()
	g, cells := gathererOf(fakes...)
	return testproc.Try(mergeServers(t.Context(), g, cells, q)).Or(t)
}

// countOf counts rows by the cell that their uuids are of.
func countOf(rows []cellwire.Row) map[string]int {
	counts := map[string]int{}
	for _, r := range rows {
		cell, _, _ := strings.Cut(r.Server.UUID, "-")
		counts[cell]++
	}
	return counts
}

// TestFailingCells: Nova's test_with_failing_cells: three cells, one times out, one fails, and the
// limit of 50 is reached all the same.
func TestFailingCells(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		r := mergeFrom(t, cellwire.ServerQuery{Limit: 50, Sort: byCreation},
			&listCell{rows: rowsOf("a", 100, 0, 2)}, &listCell{rows: rowsOf("b", 100, 0, 2), fault: hang},
			&listCell{rows: rowsOf("c", 100, 1, 2), fault: status(500)})
		check(t, map[string]int{"a": 50}, countOf(r.Rows))
		check(t, []string{"cell1", "cell2"}, namesOf(r.Down))
		check(t, true, r.More)
		check(t, mergeTimeout, time.Since(start))
	})
}

// TestACellThatFailsBetweenBatches: Nova's test_with_failing_middle_cells: a cell gives its first
// batch and then times out. It counts as down, and nothing of it is shown.
func TestACellThatFailsBetweenBatches(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for name, f := range map[string]fault{"timing out": hang, "dying": refuse,
		"with an error": status(503), "refusing": status(400)} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				middle := &listCell{rows: rowsOf("b", 300, 0, 1), fault: f, faultAt: 1}
				r := mergeFrom(t, cellwire.ServerQuery{Limit: 250, Sort: byCreation},
					&listCell{rows: rowsOf("a", 150, 1000, 2)}, middle, &listCell{rows: rowsOf("c", 50, 1001, 2)})
				check(t, map[string]int{"a": 150, "c": 50}, countOf(r.Rows))
				check(t, []string{"cell1"}, namesOf(r.Down))
				check(t, false, r.More)
				check(t, 2, middle.batches)
				check(t, naiveMerge([][]cellwire.Row{rowsOf("a", 150, 1000, 2), rowsOf("c", 50, 1001, 2)},
					cellwire.ServerQuery{Limit: 250, Sort: byCreation}).Rows, r.Rows)
			})
		})
	}
}

// TestOnlyCellTimesOut: Nova's test_query_wrapper_timeout and test_wrapper_sentinels: a cell
// without an answer stands for nothing but itself.
func TestOnlyCellTimesOut(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		check(t, mergedServers{Down: mergeFrom(t, cellwire.ServerQuery{Limit: 1}, &listCell{fault: hang}).Down,
			Late: true}, mergeFrom(t, cellwire.ServerQuery{Limit: 1}, &listCell{fault: hang}))
		check(t, []string{"cell0"}, namesOf(mergeFrom(t, cellwire.ServerQuery{Limit: 1}, &listCell{fault: hang}).Down))
	})
}

func TestNoCells(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	check(t, mergedServers{}, mergeFrom(t, cellwire.ServerQuery{Limit: 10}))
}

// TestASlowCellTakesNothingFromTheOthers: a cell that takes nearly all of the time takes it from no
// other cell, also when the others are asked again after it.
func TestASlowCellTakesNothingFromTheOthers(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		slow := &listCell{rows: rowsOf("b", 10, 5000, 1), delay: mergeTimeout - 1}
		r := mergeFrom(t, cellwire.ServerQuery{Limit: 250, Sort: byCreation},
			&listCell{rows: rowsOf("a", 240, 0, 1), delay: time.Second}, slow)
		check(t, map[string]int{"a": 240, "b": 10}, countOf(r.Rows))
		check(t, 0, len(r.Down))
	})
}

// TestASlowCellOfManyBatches: a cell has its time for each batch: one that is slow, and well, is
// not left out of long lists.
func TestASlowCellOfManyBatches(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		r := mergeFrom(t, cellwire.ServerQuery{Limit: 1000, Sort: byCreation},
			&listCell{rows: rowsOf("a", 1000, 0, 1), delay: 6 * time.Second}, &listCell{rows: rowsOf("b", 10, 0, 1)},
			&listCell{}, &listCell{}, &listCell{})
		check(t, map[string]int{"a": 990, "b": 10}, countOf(r.Rows))
		check(t, 12*time.Second, time.Since(start))
	})
}

// TestHowOftenCellsAreAsked: how often cells are asked, when none seems to be slow: for that, time
// passes in a bubble.
func TestHowOftenCellsAreAsked(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, testHowOftenCellsAreAsked)
}

func testHowOftenCellsAreAsked(t *testing.T) {
	a, b := &listCell{rows: rowsOf("a", 500, 0, 2)}, &listCell{rows: rowsOf("b", 500, 1, 2)}
	mergeFrom(t, cellwire.ServerQuery{Limit: 400, Sort: byCreation}, a, b)
	// half of the limit and four standard deviations: once is enough
	check(t, [][]int{{256}, {256}}, [][]int{a.limits, b.limits})
	a, b = &listCell{rows: rowsOf("a", 500, 0, 1)}, &listCell{rows: rowsOf("b", 500, 1000, 1)}
	mergeFrom(t, cellwire.ServerQuery{Limit: 400, Sort: byCreation}, a, b)
	check(t, [][]int{{256, 144}, {256}}, [][]int{a.limits, b.limits}) // all of a's come first: only a is asked again
	a, b = &listCell{rows: rowsOf("a", 500, 0, 1)}, &listCell{}
	mergeFrom(t, cellwire.ServerQuery{Limit: 5, Sort: byCreation}, a, b)
	check(t, [][]int{{5}, {5}}, [][]int{a.limits, b.limits})
	a = &listCell{rows: rowsOf("a", 500, 0, 1)}
	mergeFrom(t, cellwire.ServerQuery{Limit: 400, Sort: byCreation}, a)
	check(t, []int{400}, a.limits)
	// One of many that has everything is asked for more each time.
	many := make([]*listCell, 50)
	for i := range many {
		many[i] = &listCell{}
	}
	many[7].rows = rowsOf("a", 500, 0, 1)
	mergeFrom(t, cellwire.ServerQuery{Limit: 400, Sort: byCreation}, many...)
	check(t, []int{19, 76, 304, 10}, many[7].limits)
	fakes := make([]*listCell, 20)
	for i := range fakes { // several run out at nearly the same time, and are asked together
		fakes[i] = &listCell{}
	}
	fakes[3].rows, fakes[7].rows, fakes[9].rows = rowsOf("a", 400, 0, 3), rowsOf("b", 400, 1, 3), rowsOf("c", 400, 2, 3)
	start := time.Now()
	for _, f := range fakes {
		f.delay = time.Second
	}
	r := mergeFrom(t, cellwire.ServerQuery{Limit: 1000, Sort: byCreation}, fakes...)
	check(t, 1000, len(r.Rows))
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("three cells with four batches each took %v", took)
	}
}

func TestMergeRejectsInvalidPages(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	first := func(change func(p *cellwire.ServerPage)) func(int, cellwire.ServerPage) cellwire.ServerPage {
		return func(_ int, p cellwire.ServerPage) cellwire.ServerPage { change(&p); return p }
	}
	lies := map[string]func(int, cellwire.ServerPage) cellwire.ServerPage{
		"not sorted":            first(func(p *cellwire.ServerPage) { slices.Reverse(p.Rows) }),
		"a key too short":       first(func(p *cellwire.ServerPage) { p.Rows[3].Key = p.Rows[3].Key[1:] }),
		"a key too long":        first(func(p *cellwire.ServerPage) { p.Rows[3].Key = append(p.Rows[3].Key, "x") }),
		"no key":                first(func(p *cellwire.ServerPage) { p.Rows[3].Key = nil }),
		"a key of another type": first(func(p *cellwire.ServerPage) { p.Rows[3].Key[0] = "7" }),
		"all of another type": first(func(p *cellwire.ServerPage) {
			for i := range p.Rows {
				p.Rows[i].Key[0] = fmt.Sprint(i)
			}
		}),
		"a key of a list":         first(func(p *cellwire.ServerPage) { p.Rows[3].Key[0] = []int{1} }),
		"a fraction":              first(func(p *cellwire.ServerPage) { p.Rows[3].Key[0] = 1.5 }),
		"a number as uuid":        first(func(p *cellwire.ServerPage) { p.Rows[3].Key[1] = 3 }),
		"the key of another":      first(func(p *cellwire.ServerPage) { p.Rows[3].Server.UUID = "b-9999" }),
		"no uuid":                 first(func(p *cellwire.ServerPage) { p.Rows[3] = row("", int64(1003)) }),
		"a server twice in a row": first(func(p *cellwire.ServerPage) { p.Rows[4] = p.Rows[3] }),
		"a server twice": first(
			func(p *cellwire.ServerPage) { p.Rows[9] = row(p.Rows[3].Server.UUID, p.Rows[9].Key[0]) }),
		"more than was asked for": first(func(p *cellwire.ServerPage) { p.Rows = rowsOf("b", 150, 0, 1) }),
		"before the marker": first(
			func(p *cellwire.ServerPage) { p.Rows = append([]cellwire.Row{row("b-x", int64(-8))}, p.Rows[1:]...) }),
		"nothing, and there is more": first(func(p *cellwire.ServerPage) { *p = cellwire.ServerPage{More: true} }),
		"a server again in the second batch": func(batch int, p cellwire.ServerPage) cellwire.ServerPage {
			if batch == 1 {
				p.Rows[5] = row("b-0001", p.Rows[5].Key[0])
			}
			return p
		},
		"the first batch again": func(batch int, p cellwire.ServerPage) cellwire.ServerPage {
			if batch == 1 {
				return cellwire.ServerPage{Rows: rowsOf("b", 100, 0, 1), More: true}
			}
			return p
		},
	}
	for name, lie := range lies {
		t.Run(name, func(t *testing.T) {
			liar := &listCell{rows: rowsOf("b", 300, 0, 1), lie: lie}
			honest := [][]cellwire.Row{rowsOf("a", 40, 0, 4), rowsOf("c", 200, 1, 4)}
			q := cellwire.ServerQuery{Limit: 200, Sort: byCreation, After: cellwire.Key{int64(-5), "z"}}
			r := mergeFrom(t, q, &listCell{rows: honest[0]}, liar, &listCell{rows: honest[1]})
			check(t, []string{"cell1"}, namesOf(r.Down))
			check(t, naiveMerge(honest, q).Rows, r.Rows)
		})
	}
}

// TestAServerInTwoCells: a server that is in two cells, as it is while it is moved, is listed once.
func TestAServerInTwoCells(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := mergeFrom(t, cellwire.ServerQuery{Limit: 10, Sort: byCreation},
		&listCell{rows: []cellwire.Row{row("x", int64(5)), row("a", int64(1))}},
		&listCell{rows: []cellwire.Row{row("x", int64(5)), row("b", int64(2))}})
	check(t, []cellwire.Row{row("a", int64(1)), row("b", int64(2)), row("x", int64(5))}, r.Rows)
	check(t, false, r.More)
	// Cells that have all the same servers are asked to the end, and not forever.
	r = mergeFrom(t, cellwire.ServerQuery{Limit: 300, Sort: byCreation}, &listCell{rows: rowsOf("a", 250, 0, 1)},
		&listCell{rows: rowsOf("a", 250, 0, 1)})
	check(t, rowsOf("a", 250, 0, 1), r.Rows)
}

func TestMergeRejectsInvalidQueries(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, q := range []cellwire.ServerQuery{{}, {Limit: -1}, {Limit: 10, Sort: []cellwire.SortKey{{Key: "colour"}}},
		{Limit: 1, After: cellwire.Key{"x", "y"}},
		{Limit: 1, Sort: byCreation, After: cellwire.Key{"text", "uuid"}}, {Limit: 1, NamePattern: "("}} {
		fake := &listCell{}
		g, cells := gathererOf(fake)
		_, err := mergeServers(t.Context(), g, cells, q)
		var refusal *cellwire.Error
		if !errors.As(err, &refusal) || refusal.Status != 400 || fake.batches != 0 {
			t.Errorf("%+v: %v, %d requests", q, err, fake.batches)
		}
	}
}

func TestMergeEndsWithItsContext(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	synctest.Test(t, func(t *testing.T) {
		g, cells := gathererOf(&listCell{fault: hang}, &listCell{})
		ctx, cancel := context.WithCancel(t.Context())
		go func() { time.Sleep(time.Second); cancel() }()
		start := time.Now()
		_, err := mergeServers(ctx, g, cells, cellwire.ServerQuery{Limit: 1})
		if !errors.Is(err, context.Canceled) || time.Since(start) != time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

// TestMergeEqualsASort: for any cells, rows, limits, markers and failures the list is what a naive
// sort of the rows of the cells that are up gives.
func TestMergeEqualsASort(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rapid.Check(t, func(r *rapid.T) {
		q := cellwire.ServerQuery{Limit: rapid.IntRange(1, 450).Draw(r, "limit"), Sort: drawSort(r)}
		shared := rapid.IntRange(0, 20).Draw(r, "shared")
		var fakes []*listCell
		for i := range rapid.IntRange(0, 5).Draw(r, "cells") {
			fakes = append(fakes, drawCell(r, i, shared, q.Sort))
		}
		if len(fakes) > 0 && len(fakes[0].rows) > 0 && rapid.Bool().Draw(r, "marked") {
			q.After = rapid.SampledFrom(fakes[0].rows).Draw(r, "marker").Key
		}
		g, cells := gathererOf(fakes...)
		var got mergedServers
		var err error
		synctest.Test(t, func(t *testing.T) { got, err = mergeServers(t.Context(), g, cells, q) })
		testproc.Check(r, err)
		var up [][]cellwire.Row
		var down []string
		for i, f := range fakes {
			if f.failed {
				down = append(down, cells[i].Name)
			} else {
				up = append(up, f.rows)
			}
			if f.fault != nil && f.faultAt == 0 && !f.failed {
				r.Errorf("cell %d was not asked", i)
			}
		}
		want := naiveMerge(up, q)
		check(r, want.Rows, got.Rows)
		check(r, down, namesOf(got.Down))
		if want.More && !got.More || got.More && !want.More && shared == 0 {
			r.Errorf("more is %v, not %v", got.More, want.More)
		}
	})
}

func drawSort(t *rapid.T) []cellwire.SortKey {
	columns := rapid.SliceOfNDistinct(
		rapid.SampledFrom([]string{"created_at", "display_name", "launch_index", "vm_state", "updated_at"}), 0,
		3, rapid.ID).Draw(t, "columns")
	var sort []cellwire.SortKey
	for _, c := range columns {
		sort = append(sort, cellwire.SortKey{Key: c, Desc: rapid.Bool().Draw(t, "desc")})
	}
	return sort
}

// drawCell gives a cell of up to 350 rows with few different values, some of whose servers are in
// the other cells too.
func drawCell(t *rapid.T, index, shared int, sort []cellwire.SortKey) *listCell {
	random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
	different := rapid.SampledFrom([]int{1, 3, 1000}).Draw(t, "different")
	skew := rapid.SampledFrom([]int{0, 1500}).Draw(t, "skew") * index
	f := &listCell{}
	for i := range rapid.IntRange(0, 350).Draw(t, "rows") {
		uuid := fmt.Sprintf("%c-%04d", 'a'+index, random.IntN(100)*1000+i)
		if i < shared {
			uuid = fmt.Sprintf("shared-%04d", i)
		}
		var values []any
		for _, k := range sort {
			value := random.IntN(different) + skew
			if k.Key == "display_name" || k.Key == "vm_state" {
				values = append(values, fmt.Sprintf("%05d", value))
			} else {
				values = append(values, int64(value))
			}
		}
		f.rows = append(f.rows, row(uuid, values...))
	}
	if rapid.IntRange(0, 2).Draw(t, "faulty") == 0 {
		f.fault = rapid.SampledFrom([]fault{hang, refuse, status(500), status(404)}).Draw(t, "fault")
		f.faultAt = rapid.IntRange(0, 3).Draw(t, "fault at")
	}
	return f
}

// TestPagesFollowEachOther: page after page gives every server once.
func TestPagesFollowEachOther(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	rapid.Check(t, func(t *rapid.T) {
		q := cellwire.ServerQuery{Limit: rapid.IntRange(50, 400).Draw(t, "limit"), Sort: drawSort(t)}
		var fakes []*listCell
		var all [][]cellwire.Row
		for i := range rapid.IntRange(1, 4).Draw(t, "cells") {
			f := drawCell(t, i, 0, q.Sort)
			f.fault = nil
			fakes, all = append(fakes, f), append(all, f.rows)
		}
		g, cells := gathererOf(fakes...)
		var got []cellwire.Row
		for {
			r := testproc.Try(mergeServers(context.Background(), g, cells, q)).Or(t)
			got = append(got, r.Rows...)
			if !r.More {
				break
			}
			q.After = r.Rows[len(r.Rows)-1].Key
		}
		q.After, q.Limit = nil, 10000
		check(t, naiveMerge(all, q).Rows, got)
	})
}
