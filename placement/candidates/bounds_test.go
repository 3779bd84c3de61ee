// SPDX-License-Identifier: Apache-2.0

package candidates_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/compute-agent/compute-agent/placement/candidates"
	"github.com/compute-agent/compute-agent/test/placementtest"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// crowd is a host of ten providers and a request for n groups that must all be served by one of
// them, of which each has capacity for a third: the search goes far before it finds that out, ten
// times.
func crowd(n int) (placementtest.Forest, candidates.Request) {
	f := placementtest.Forest{{Name: "h"}}
	for i := range 10 {
		f = append(f, placementtest.Provider{Name: fmt.Sprint("c", i), Parent: "h",
			Inventories: has("VCPU", int64(n/3))})
	}
	var r candidates.Request
	var set []string
	for i := range n {
		suffix := fmt.Sprint("_", i)
		r.Groups = append(r.Groups, asks(suffix, "VCPU", 1))
		set = append(set, suffix)
	}
	r.SameSubtree = [][]string{set}
	return f, r
}

// leaving is a context that ends after its end was asked about a number of times.
type leaving struct {
	context.Context
	asked, after int
}

func (l *leaving) Err() error {
	if l.asked++; l.asked > l.after {
		return context.Canceled
	}
	return nil
}

// TestLongSubtreesAreBounded: providers that are compared for a long same_subtree count as steps,
// so that the search ends when it should, and when no client waits for it any more.
func TestLongSubtreesAreBounded(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	f, r := crowd(200)
	s := plant(t, ground(t), f)
	stats, err := candidates.Search(ctx, s, &r, candidates.Options{Steps: 50_000},
		func(*candidates.Candidate) bool { return true })
	if err != nil || !stats.Exhausted || stats.Steps > 60_000 {
		t.Errorf("%+v, %v, want an end at about 50,000 steps", stats, err)
	}
	gone := &leaving{Context: ctx, after: 1}
	if stats, err = candidates.Search(gone, s, &r, candidates.Options{},
		func(*candidates.Candidate) bool { return true }); !errors.Is(err, context.Canceled) || stats.Steps > 200_000 {
		t.Errorf("no client waits: %+v, %v", stats, err)
	}
}

// TestUnknownNamesAreBounded: whether the groups before an unknown name can be served is found out
// with the steps of one search.
func TestUnknownNamesAreBounded(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	var f placementtest.Forest
	for i := range 50 {
		f = append(f, placementtest.Provider{Name: fmt.Sprint("h", i),
			Inventories: []placementtest.Inventory{{Class: "VCPU", Total: 4, Used: 4}}})
	}
	f = append(f, placementtest.Provider{Name: "free", Inventories: has("VCPU", 4)})
	s := plant(t, ground(t), f)
	var r candidates.Request
	for i := range 100 {
		r.Groups = append(r.Groups, asks(fmt.Sprint("_", i), "VCPU", 1))
	}
	r.Groups = append(r.Groups, requiring(asks("_X", "VCPU", 1), "CUSTOM_NONE"))
	asked := &leaving{Context: ctx, after: 1 << 30}
	_, err := candidates.Search(asked, s, &r, candidates.Options{Steps: 5000},
		func(*candidates.Candidate) bool { return true })
	var unknown *candidates.UnknownNameError
	if !errors.As(err, &unknown) || unknown.Trait != "CUSTOM_NONE" {
		t.Errorf("the error is %v", err)
	}
	// Each of the searches asks about the context once, at its first tree.
	if asked.asked > 20 {
		t.Errorf("%d groups were searched for, want those that 5,000 steps last for", asked.asked)
	}
}

// TestExplainIsBounded: trees that there are no steps left for are undecided, and not filled.
func TestExplainIsBounded(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	f, r := crowd(100)
	var many placementtest.Forest
	for i := range 20 {
		many = append(many, f.Copy(fmt.Sprint("x", i))...)
	}
	e := testproc.Try(candidates.Explain(ctx, plant(t, ground(t), many), &r, candidates.Options{Steps: 20_000})).Or(t)
	last := e.Trees[len(e.Trees)-1]
	if last.Kind != candidates.StepUndecided || last.Removed == 0 || last.Trees != 0 {
		t.Errorf("the last step is %+v, want the trees that were not decided", last)
	}
}
