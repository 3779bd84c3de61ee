// SPDX-License-Identifier: Apache-2.0

package candidates_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/compute-agent/compute-agent/placement/candidates"
	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/test/placementtest"
	"github.com/compute-agent/compute-agent/test/testproc"
)

var ctx = context.Background()

// TestMain asks for more checks of each property than rapid does by itself: they are cheap.
func TestMain(m *testing.M) {
	flag.Parse()
	set := false
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == "rapid.checks" })
	if !set {
		if err := flag.Set("rapid.checks", "2000"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

func ground(t testing.TB) *placementtest.ForestLedger {
	t.Helper()
	g := testproc.Try(placementtest.NewForestLedger(ctx)).Or(t)
	t.Cleanup(func() { testproc.NoError(t, g.Close()) })
	return g
}

// fataler is a test, or a check of a property.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

func plant(t fataler, g *placementtest.ForestLedger, f placementtest.Forest) *ledger.Snapshot {
	t.Helper()
	s, err := g.Load(ctx, f)
	if err != nil {
		t.Fatalf("planting\n%s: %v", f, err)
	}
	return s
}

// find searches and returns the keys of what is found in order, having checked each candidate for
// itself.
func find(
	t fataler, s *ledger.Snapshot, r *candidates.Request, o candidates.Options,
) ([]string, candidates.Stats, error) {
	t.Helper()
	var keys []string
	stats, err := candidates.Search(ctx, s, r, o, func(c *candidates.Candidate) bool {
		if fault := faultOf(r, c); fault != "" {
			t.Fatalf("a candidate %s: %s", fault, placementtest.CandidateKey(r, c.Allocations, c.Groups))
		}
		keys = append(keys, placementtest.CandidateKey(r, c.Allocations, c.Groups))
		return true
	})
	if err == nil && stats.Candidates != len(keys) {
		t.Fatalf("%d candidates were given, and %d are counted", len(keys), stats.Candidates)
	}
	return keys, stats, err
}

// faultOf says what is wrong with the form of a candidate.
func faultOf(r *candidates.Request, c *candidates.Candidate) string {
	if c.Root == nil || c.Root.Parent != "" {
		return "has a root that is not a root"
	}
	if len(c.Groups) != len(r.Groups) {
		return fmt.Sprintf("has %d groups of %d", len(c.Groups), len(r.Groups))
	}
	asked, given := map[string]int64{}, map[string]int64{}
	var serving []*ledger.Provider
	for i, g := range r.Groups {
		for _, res := range g.Resources {
			asked[res.Class] += res.Amount
		}
		if len(c.Groups[i]) == 0 || g.Suffix != "" && len(c.Groups[i]) != 1 {
			return fmt.Sprintf("serves group %q with %d providers", g.Suffix, len(c.Groups[i]))
		}
		for j, p := range c.Groups[i] {
			if slices.Contains(c.Groups[i][:j], p) {
				return "has a provider twice in group " + g.Suffix
			}
		}
		if len(g.Resources) > 0 {
			serving = append(serving, c.Groups[i]...)
		}
	}
	for i, a := range c.Allocations {
		given[a.Class] += a.Amount
		if !slices.Contains(serving, a.Provider) {
			return "allocates of a provider that serves no group"
		}
		for j, b := range c.Allocations[:i] {
			if a.Provider == b.Provider && a.Class == b.Class {
				return "has an allocation twice"
			}
			if a.Provider == b.Provider && c.Allocations[j+1].Provider != a.Provider {
				return "has the allocations of a provider apart"
			}
		}
	}
	if diff := cmp.Diff(asked, given); diff != "" {
		return "does not allocate what is asked for"
	}
	return ""
}

// checkAgainstReference searches in all ways and compares with what there is.
func checkAgainstReference(t fataler, s *ledger.Snapshot, r *candidates.Request, seed uint64, limit int) {
	t.Helper()
	want, wantErr := placementtest.AllCandidates(s, r)
	rotation := candidates.Rotation{At: seed % 99, Phase: seed * 0x9e3779b97f4a7c15, Window: limit}
	for _, o := range []candidates.Options{
		{}, {DepthFirst: true}, {Seed: seed}, {Seed: seed, DepthFirst: true}, {Rotation: rotation},
		{Rotation: rotation, DepthFirst: true},
	} {
		got, stats, err := find(t, s, r, o)
		if !sameError(err, wantErr) {
			t.Fatalf("%+v: the error is %v, want %v", o, err, wantErr)
		}
		if stats.Exhausted {
			t.Fatalf("%+v: gave up after %d steps", o, stats.Steps)
		}
		if diff := cmp.Diff(want.Keys(), sorted(got)); err == nil && diff != "" {
			t.Fatalf("%+v: not all and only the candidates, each once (-want +got):\n%s", o, diff)
		}
		o.Limit = limit
		some, _, err := find(t, s, r, o)
		if !sameError(err, wantErr) {
			t.Fatalf("%+v: the error is %v, want %v", o, err, wantErr)
		}
		if err != nil {
			continue
		}
		if len(some) != min(limit, len(want)) {
			t.Fatalf("%+v: %d candidates of %d", o, len(some), len(want))
		}
		if diff := cmp.Diff(got[:len(some)], some); diff != "" {
			t.Fatalf("%+v: not the first of all that there are (-want +got):\n%s", o, diff)
		}
	}
}

func sorted(keys []string) []string {
	keys = append([]string{}, keys...)
	slices.Sort(keys)
	return keys
}

// sameError says whether both name the same place in the request.
func sameError(a, b error) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	var x, y *candidates.UnknownNameError
	return errors.As(a, &x) && errors.As(b, &y) && *x == *y
}

// TestSearchFindsAll: on small random forests, Search finds exactly what an exhaustive look at all
// combinations finds, in any order that can be asked for, and with a limit the first of them.
func TestSearchFindsAll(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	g := ground(t)
	rapid.Check(t, func(t *rapid.T) {
		f := placementtest.Forests().Draw(t, "forest")
		r := placementtest.CandidateRequests(true).Draw(t, "request")
		// Among many trees that have nothing, the few that have something are found by their rarest
		// quality.
		f = f.Among(rapid.SampledFrom([]int{0, 0, 0, 40}).Draw(t, "others"))
		check(t, g, f, r)
	})
}

// TestRareSharing: where the rarest that is asked for is shared, the trees that it is shared with
// are found, of many.
func TestRareSharing(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	f := placementtest.Forest{{Name: "nfs", Inventories: has("DISK_GB", 100), Traits: []string{shares},
		Aggregates: []string{"aggA"}}}
	for i := range 40 {
		p := placementtest.Provider{Name: fmt.Sprint("h", i), Inventories: has("VCPU", 4)}
		if i%20 == 7 {
			p.Aggregates = []string{"aggA"}
		}
		f = append(f, p)
	}
	s := plant(t, ground(t), f)
	r := &candidates.Request{Groups: []candidates.Group{{Resources: []candidates.Resource{{Class: "VCPU", Amount: 1},
		{Class: "DISK_GB", Amount: 10}}}}}
	checkAgainstReference(t, s, r, 7, 1)
	got, stats, err := find(t, s, r, candidates.Options{})
	want := []string{"h27:VCPU=1 nfs:DISK_GB=10 | =h27+nfs", "h7:VCPU=1 nfs:DISK_GB=10 | =h7+nfs"}
	if diff := cmp.Diff(want, sorted(got)); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if stats.Trees > 3 {
		t.Errorf("%d trees were looked at, want those that the share is for", stats.Trees)
	}
}

// TestSearchOfManyTrees: the same where many trees have several candidates each. The examples are
// always the same ones.
func TestSearchOfManyTrees(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	g := ground(t)
	tried := 0
	for seed := 0; tried < 40; seed++ {
		one := placementtest.Forests().Example(seed)
		r := placementtest.CandidateRequests(true).Example(seed)
		if some, err := placementtest.AllCandidates(plant(t, g, one), r); err != nil || len(some) < 2 ||
			one.Shares() && len(one) > 2 {
			continue
		}
		tried++
		f := one
		for i := range 69 {
			f = append(f, one.Copy(fmt.Sprint("-", i))...)
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			checkAgainstReference(t, plant(t, g, f), r, uint64(seed+1), seed+1)
			if t.Failed() {
				t.Logf("forest, 70 times:\n%srequest: %+v", one, r)
			}
		})
	}
}

func check(t *rapid.T, g *placementtest.ForestLedger, f placementtest.Forest, r *candidates.Request) {
	t.Logf("forest:\n%srequest: %+v", f, r)
	seed := rapid.Uint64Min(1).Draw(t, "seed")
	limit := rapid.IntRange(1, 100).Draw(t, "limit")
	checkAgainstReference(t, plant(t, g, f), r, seed, limit)
}
