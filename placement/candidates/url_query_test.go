// SPDX-License-Identifier: Apache-2.0

package candidates_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/placement/candidates"
	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const (
	u1 = "aaaaaaaa-0000-4000-8000-000000000001"
	u2 = "aaaaaaaa-0000-4000-8000-000000000002"
)

func vcpu(n int64) []candidates.Resource { return []candidates.Resource{{Class: "VCPU", Amount: n}} }

// TestCandidatesQuery is what queries mean, each at the first microversion that has it.
func TestCandidatesQuery(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, c := range []struct {
		version wire.Version
		query   string
		want    candidates.URLQuery
	}{
		{10, "resources=VCPU:1,DISK_GB:10",
			candidates.URLQuery{Request: candidates.Request{Flat: true, Groups: []candidates.Group{
				{Resources: []candidates.Resource{{Class: "VCPU", Amount: 1}, {Class: "DISK_GB", Amount: 10}}}}}}},
		{10, "resources=DISK_GB:9&resources=VCPU:1,VCPU:%202",
			candidates.URLQuery{Request: candidates.Request{Flat: true, Groups: []candidates.Group{
				{Resources: vcpu(2)}}}}},
		{16, "limit=7&resources=VCPU:1&limit=8",
			candidates.URLQuery{Limit: 7, Request: candidates.Request{Flat: true, Groups: []candidates.Group{
				{Resources: vcpu(1)}}}}},
		{16, "limit=99999999999999999999&resources=VCPU:99999999999999999999",
			candidates.URLQuery{Limit: jsonkit.MaxExact, Request: candidates.Request{
				Flat: true, Groups: []candidates.Group{{Resources: vcpu(jsonkit.MaxExact)}}}}},
		{17, "required=X&required=A,%20B&resources=VCPU:1",
			candidates.URLQuery{Request: candidates.Request{Flat: true, Groups: []candidates.Group{
				{Resources: vcpu(1), Required: [][]string{{"A"}, {"B"}}}}}}},
		{21, "resources=VCPU:1&member_of=in:" + u1 + "," +
			u2, candidates.URLQuery{Request: candidates.Request{Flat: true, Groups: []candidates.Group{
			{Resources: vcpu(1), MemberOf: [][]string{{u1, u2}}}}}}},
		{22, "resources=VCPU:1&required=A,!B,!!C",
			candidates.URLQuery{Request: candidates.Request{Flat: true, Groups: []candidates.Group{
				{Resources: vcpu(1), Required: [][]string{{"A"}}, Forbidden: []string{"B", "C"}}}}}},
		{24, "resources=VCPU:1&member_of=" + u1 + "&member_of=" + u2,
			candidates.URLQuery{Request: candidates.Request{Flat: true, Groups: []candidates.Group{
				{Resources: vcpu(1), MemberOf: [][]string{{u1}, {u2}}}}}}},
		{25, "required2=A&resources=VCPU:1&resources2=VCPU:2",
			candidates.URLQuery{Request: candidates.Request{Flat: true, Groups: []candidates.Group{
				{Suffix: "2", Resources: vcpu(2), Required: [][]string{{"A"}}}, {Resources: vcpu(1)}}}}},
		{25, "group_policy=isolate&resources1=VCPU:1&resources20=VCPU:2&group_policy=none",
			candidates.URLQuery{Request: candidates.Request{
				Flat: true, GroupPolicy: candidates.Isolate, Groups: []candidates.Group{
					{Suffix: "1", Resources: vcpu(1)}, {Suffix: "20", Resources: vcpu(2)}}}}},
		{25, "resources1=VCPU:1&member_of1=" + u1,
			candidates.URLQuery{Request: candidates.Request{Flat: true, Groups: []candidates.Group{
				{Suffix: "1", Resources: vcpu(1), MemberOf: [][]string{{u1}}}}}}},
		{29, "resources=VCPU:1",
			candidates.URLQuery{Request: candidates.Request{Groups: []candidates.Group{{Resources: vcpu(1)}}}}},
		{31, "resources=VCPU:1&resources1=VCPU:1&in_tree1=" + u1 + "&in_tree1=%20" + u2 + "%20",
			candidates.URLQuery{Request: candidates.Request{
				Groups: []candidates.Group{{Resources: vcpu(1)}, {Suffix: "1", Resources: vcpu(1), InTree: u2}}}}},
		{32, "resources=VCPU:1&member_of=!" + u1 + "&member_of=!in:" + u1 + "," + u2 + "&member_of=" + u2,
			candidates.URLQuery{Request: candidates.Request{
				Groups: []candidates.Group{{Resources: vcpu(1), MemberOf: [][]string{{u2}},
					NotMemberOf: []string{u1, u2}}}}}},
		{33, "resources0=VCPU:1&resources_a-B=VCPU:2&group_policy=none",
			candidates.URLQuery{Request: candidates.Request{
				Groups: []candidates.Group{{Suffix: "0", Resources: vcpu(1)}, {Suffix: "_a-B", Resources: vcpu(2)}}}}},
		{35, "resources=VCPU:1&root_required=A,!B", candidates.URLQuery{Request: candidates.Request{
			Groups: []candidates.Group{{Resources: vcpu(1)}},
			Root:   candidates.RootConditions{Required: []string{"A"}, Forbidden: []string{"B"}}}}},
		{36, "resources_A=VCPU:1&required_B=T&same_subtree=_A,%20_B,_A&same_subtree=_B&group_policy=none",
			candidates.URLQuery{Request: candidates.Request{
				Groups: []candidates.Group{{Suffix: "_A", Resources: vcpu(1)},
					{Suffix: "_B", Required: [][]string{{"T"}}}},
				SameSubtree: [][]string{{"_A", "_B"}, {"_B"}}}}},
		{38, "resources=VCPU:1&required=A&required=B", candidates.URLQuery{Request: candidates.Request{
			Groups: []candidates.Group{{Resources: vcpu(1), Required: [][]string{{"B"}}}}}}},
		{39, "resources=VCPU:1&required=in:A,B&required=C,!D", candidates.URLQuery{Request: candidates.Request{
			Groups: []candidates.Group{{Resources: vcpu(1),
				Required: [][]string{{"A", "B"}, {"C"}}, Forbidden: []string{"D"}}}}}},
		{39, "resources=VCPU:1&required=A,B,!C,A,!C&required=in:A,B,A&required=in:A,B&root_required=A,A,!B,!B",
			candidates.URLQuery{Request: candidates.Request{
				Groups: []candidates.Group{{Resources: vcpu(1),
					Required: [][]string{{"A"}, {"B"}, {"A", "B"}}, Forbidden: []string{"C"}}},
				Root: candidates.RootConditions{Required: []string{"A"}, Forbidden: []string{"B"}}}}},
		{39, "resources=VCPU:1&required=in:A,B&required=!A", candidates.URLQuery{Request: candidates.Request{
			Groups: []candidates.Group{{Resources: vcpu(1),
				Required: [][]string{{"A", "B"}}, Forbidden: []string{"A"}}}}}},
	} {
		got, err := candidates.ReadURLQuery(c.query, c.version, 0)
		diff := cmp.Diff(c.want, got, cmpopts.EquateEmpty())
		if err != nil || diff != "" {
			t.Errorf("%s at %s: %v (-want +got):\n%s", c.query, c.version, err, diff)
		}
	}
}

// TestCandidatesQueryFeatures is when each form of a parameter came: it is taken from one
// microversion on, and never before.
func TestCandidatesQueryFeatures(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for _, c := range []struct {
		since wire.Feature
		query string
	}{
		{wire.AllocationCandidates, "resources=VCPU:1"},
		{wire.CandidatesLimit, "resources=VCPU:1&limit=1"},
		{wire.CandidatesRequired, "resources=VCPU:1&required=A"},
		{wire.CandidatesMemberOf, "resources=VCPU:1&member_of=" + u1},
		{wire.ForbiddenTraits, "resources=VCPU:1&required=!A"},
		{wire.RepeatedMemberOf, "resources=VCPU:1&member_of=" + u1 + "&member_of=" + u1},
		{wire.GranularGroups, "resources1=VCPU:1"},
		{wire.GranularGroups, "resources1=VCPU:1&required1=A"},
		{wire.GranularGroups, "resources=VCPU:1&group_policy=none"},
		{wire.CandidatesInTree, "resources=VCPU:1&in_tree=" + u1},
		{wire.ForbiddenAggregates, "resources=VCPU:1&member_of=!" + u1},
		{wire.NamedSuffixes, "resources0=VCPU:1"},
		{wire.NamedSuffixes, "resources01=VCPU:1"},
		{wire.NamedSuffixes, "resources_COMPUTE=VCPU:1"},
		{wire.NamedSuffixes, "resources" + strings.Repeat("z", 64) + "=VCPU:1"},
		{wire.RootRequired, "resources=VCPU:1&root_required=A"},
		{wire.SameSubtree, "resources1=VCPU:1&same_subtree=1"},
		{wire.SameSubtree, "resources1=VCPU:1&required2=A&group_policy=none&same_subtree=1,2"},
		{wire.AnyTraits, "resources=VCPU:1&required=in:A,B"},
	} {
		for v := wire.Version(wire.AllocationCandidates); v <= wire.MaxVersion; v++ {
			if _, err := candidates.ReadURLQuery(c.query, v, 0); (err == nil) != v.Has(c.since) {
				t.Errorf("%s at %s: %v", c.query, v, err)
			}
		}
	}
}

// TestCandidatesQueryRefused is what is no good at any microversion from since to until, and the
// code that is given for it.
func TestCandidatesQueryRefused(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const (
		undefined = wire.CodeUndefined
		badValue  = wire.CodeBadQueryValue
		missing   = wire.CodeMissingQueryValue
		duplicate = wire.CodeDuplicateQueryKey
		newest    = wire.MaxVersion
	)
	for _, c := range []struct {
		since, until wire.Version
		query        string
		code         wire.ErrorCode
	}{
		// Parameters that are none.
		{10, newest, "resources=VCPU:1&cow=moo", undefined},
		{10, newest, "resources=VCPU:1&name=a", undefined},
		{10, newest, "resources=VCPU:1&resources*=VCPU:1", undefined},
		{10, newest, "resources=VCPU:1&resources" + strings.Repeat("z", 65) + "=VCPU:1", undefined},
		{10, newest, "resources=VCPU:1&root_member_of=" + u1, undefined},
		{10, newest, "resources1=VCPU:1&isolate=1", undefined},
		{10, newest, "resources=VCPU:1&Limit=1", undefined},
		{10, newest, "resources=VCPU:1&%ff", undefined},
		// No group at all.
		{10, 35, "", undefined},
		{36, newest, "", missing},
		{16, 35, "limit=1", undefined},
		{36, newest, "limit=1", missing},
		// Values in a wrong form.
		{10, newest, "resources=", undefined},
		{10, newest, "resources=VCPU", undefined},
		{10, newest, "resources=VCPU:", undefined},
		{10, newest, "resources=VCPU:1:2", undefined},
		{10, newest, "resources=VCPU:0", undefined},
		{10, newest, "resources=VCPU:-1", undefined},
		{10, newest, "resources=VCPU:1.5", undefined},
		{10, newest, "resources=VCPU:1,", undefined},
		{10, newest, "resources=VCPU:0&resources=VCPU:1", undefined},
		{16, newest, "resources=VCPU:1&limit=0", undefined},
		{16, newest, "resources=VCPU:1&limit=-5", undefined},
		{16, newest, "resources=VCPU:1&limit=01", undefined},
		{16, newest, "resources=VCPU:1&limit=", undefined},
		{16, newest, "resources=VCPU:1&limit=1.0", undefined},
		{16, newest, "resources=VCPU:1&limit=1&limit=x", undefined},
		{16, newest, "resources=VCPU:1&limit=x&limit=1", undefined},
		{17, newest, "resources=VCPU:1&required=", undefined},
		{17, newest, "resources=VCPU:1&required=A,,B", undefined},
		{22, newest, "resources=VCPU:1&required=!", undefined},
		{39, newest, "resources=VCPU:1&required=in:", undefined},
		{39, newest, "resources=VCPU:1&required=in:A,!B", undefined},
		{21, newest, "resources=VCPU:1&member_of=", undefined},
		{21, newest, "resources=VCPU:1&member_of=x", undefined},
		{21, newest, "resources=VCPU:1&member_of=" + u1 + "," + u2, undefined},
		{21, newest, "resources=VCPU:1&member_of=in:" + u1 + ",x", undefined},
		{25, newest, "resources=VCPU:1&group_policy=some", undefined},
		{25, newest, "resources=VCPU:1&group_policy=", undefined},
		{25, newest, "resources=VCPU:1&group_policy=none&group_policy=some", undefined},
		{31, newest, "resources=VCPU:1&in_tree=", undefined},
		{31, newest, "resources=VCPU:1&in_tree=x&in_tree=" + u1, undefined},
		{35, newest, "resources=VCPU:1&root_required=", undefined},
		{35, newest, "resources=VCPU:1&root_required=in:A,B", undefined},
		// Groups and their resources.
		{17, 24, "required=A", undefined},
		{25, 35, "required=A", undefined},
		{36, newest, "required=A", missing},
		{25, 35, "resources=VCPU:1&required1=A", undefined},
		{36, newest, "resources=VCPU:1&required1=A", badValue},
		{25, 35, "resources=VCPU:1&member_of1=" + u1, undefined},
		{36, newest, "resources=VCPU:1&member_of1=" + u1, badValue},
		{31, 35, "resources=VCPU:1&in_tree1=" + u1, undefined},
		{36, newest, "resources=VCPU:1&in_tree1=" + u1, badValue},
		{36, newest, "resources1=VCPU:1&required=A&same_subtree=1", badValue},
		{36, newest, "required1=A&same_subtree=1", missing},
		// same_subtree names groups.
		{36, newest, "resources1=VCPU:1&same_subtree=", badValue},
		{36, newest, "resources1=VCPU:1&same_subtree=1,,1", badValue},
		{36, newest, "resources1=VCPU:1&same_subtree=1,2", badValue},
		{36, newest, "resources1=VCPU:1&same_subtree=1&same_subtree=2", badValue},
		// Conflicts.
		{22, newest, "resources=VCPU:1&required=A,!A", undefined},
		{25, newest, "resources=VCPU:1&resources1=VCPU:1&required1=B,A,!A", undefined},
		{39, newest, "resources=VCPU:1&required=in:A,B&required=!A,!B", undefined},
		{35, newest, "resources=VCPU:1&root_required=A,!A", badValue},
		{35, newest, "resources=VCPU:1&root_required=A&root_required=A", duplicate},
		// How suffixed groups share providers.
		{25, newest, "resources1=VCPU:1&resources2=VCPU:1", undefined},
		{25, newest, "resources=VCPU:1&resources1=VCPU:1&resources2=VCPU:1", undefined},
		{25, newest, "resources1=VCPU:1&resources2=VCPU:1&group_policy=&group_policy=none", undefined},
		// Wrong in two ways: the first that is looked for counts.
		{36, newest, "resources=VCPU:x&root_required=A&root_required=B", duplicate},
		{36, newest, "resources=VCPU:x&same_subtree=", badValue},
		{36, newest, "resources1=VCPU:1&resources2=VCPU:1&same_subtree=3", badValue},
		{36, newest, "resources=VCPU:1&limit=0&root_required=A&root_required=B", undefined},
	} {
		for v := c.since; v <= c.until; v++ {
			_, err := candidates.ReadURLQuery(c.query, v, 0)
			var f *wire.QueryError
			if !errors.As(err, &f) || f.Code != c.code && (f.Code != "" || c.code != undefined) {
				t.Errorf("%s at %s: %v %+v, want code %s", c.query, v, err, f, c.code)
			}
		}
	}
}

func TestCandidatesQueryExtensions(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	all := wire.ReadExtensions([]string{"root_member_of, Group_Policy", "cows,isolate", "Resourceless"})
	if all.String() != "root_member_of, group_policy, isolate, resourceless" {
		t.Fatalf("the extensions are %s", all)
	}
	for _, c := range []struct {
		query string
		ext   string
		want  *candidates.Request // nil: refused
	}{
		{"resources=VCPU:1&root_member_of=" + u1 + "&root_member_of=!in:" + u1 + "," + u2 + "&root_member_of=in:" +
			u1 + "," + u2, "root_member_of",
			&candidates.Request{Groups: []candidates.Group{{Resources: vcpu(1)}},
				Root: candidates.RootConditions{MemberOf: [][]string{{u1}, {u1, u2}}, NotMemberOf: []string{u1, u2}}}},
		{"resources=VCPU:1&root_member_of=x", "root_member_of", nil},
		{"resources=VCPU:1&root_member_of=" + u1 + "," + u2, "root_member_of", nil},
		{"resources=VCPU:1&root_member_of=" + u1, "isolate,group_policy", nil},
		{"resources1=VCPU:1&resources2=VCPU:1", "group_policy",
			&candidates.Request{Groups: []candidates.Group{{Suffix: "1", Resources: vcpu(1)},
				{Suffix: "2", Resources: vcpu(1)}}}},
		{"resources1=VCPU:1&resources2=VCPU:1&group_policy=isolate", "group_policy",
			&candidates.Request{GroupPolicy: candidates.Isolate,
				Groups: []candidates.Group{{Suffix: "1", Resources: vcpu(1)}, {Suffix: "2", Resources: vcpu(1)}}}},
		{"resources1=VCPU:1&resources2=VCPU:1", "isolate", nil},
		{"resources1=VCPU:1&resources2=VCPU:1&isolate=2,%201&isolate=2", "isolate",
			&candidates.Request{Isolate: []string{"2", "1"},
				Groups: []candidates.Group{{Suffix: "1", Resources: vcpu(1)}, {Suffix: "2", Resources: vcpu(1)}}}},
		{"resources1=VCPU:1&required2=A&same_subtree=1,2&isolate=2", "isolate",
			&candidates.Request{Isolate: []string{"2"}, SameSubtree: [][]string{{"1", "2"}},
				Groups: []candidates.Group{{Suffix: "1", Resources: vcpu(1)},
					{Suffix: "2", Required: [][]string{{"A"}}}}}},
		{"resources1=VCPU:1&required2=A&isolate=2", "isolate", nil},
		{"resources1=VCPU:1&isolate=2", "isolate", nil},
		{"resources1=VCPU:1&isolate=", "isolate", nil},
		{"resources=VCPU:1&resources1=VCPU:1&isolate=1,", "isolate", nil},
		{"resources1=VCPU:1&isolate=1&group_policy=none", "isolate,group_policy", nil},
		{"resources1=VCPU:1&isolate=1", "root_member_of,group_policy", nil},
		{"resources1=VCPU:1&required=A,!B&in_tree=" + u1, "resourceless",
			&candidates.Request{Resourceless: true, Groups: []candidates.Group{
				{Suffix: "1", Resources: vcpu(1)},
				{Required: [][]string{{"A"}}, Forbidden: []string{"B"}, InTree: u1}}}},
		{"resources1=VCPU:1&required2=!A&in_tree2=" + u1 + "&same_subtree=1,2&group_policy=none", "resourceless",
			&candidates.Request{Resourceless: true, SameSubtree: [][]string{{"1", "2"}}, Groups: []candidates.Group{
				{Suffix: "1", Resources: vcpu(1)}, {Suffix: "2", Forbidden: []string{"A"}, InTree: u1}}}},
		{"resources1=VCPU:1&required=A", "root_member_of,group_policy,isolate", nil},
		{"resources1=VCPU:1&required2=A&group_policy=none", "resourceless", nil}, // It is in no same_subtree.
		{"required=A", "resourceless", nil},
	} {
		got, err := candidates.ReadURLQuery(c.query, wire.MaxVersion, wire.ReadExtensions([]string{c.ext}))
		if c.want == nil {
			var f *wire.QueryError
			if !errors.As(err, &f) {
				t.Errorf("%s with %s: %v", c.query, c.ext, err)
			}
			continue
		}
		if diff := cmp.Diff(*c.want, got.Request, cmpopts.EquateEmpty()); err != nil || diff != "" {
			t.Errorf("%s with %s: %v (-want +got):\n%s", c.query, c.ext, err, diff)
		}
	}
}

// FuzzCandidatesQuery feeds whole query strings to the parser. Whatever comes in, the only error is
// a 400, and what is taken keeps all that the search relies on.
func FuzzCandidatesQuery(f *testing.F) {
	for _, seed := range []string{
		"resources=VCPU:1", "resources=VCPU:1,VCPU:2&limit=3&limit=x",
		"resources1=VCPU:1&resources2=DISK_GB:1&group_policy=isolate",
		"resources_A=VCPU:1&required_B=in:X,Y&required_B=!X&same_subtree=_A,_B&group_policy=none&isolate=_A",
		"root_required=A,!A&resources=VCPU:1",
		"resources=VCPU:1&member_of=!in:" + u1 + "," + u2 +
			"&root_member_of=" + u1, "in_tree1={" + u1 + "}&resources1=:1", "isolate=,&resources=A:1",
		"resources_A=VCPU:1&required=!X&in_tree=" + u1,
	} {
		f.Add(seed, uint8(wire.MaxVersion), uint8(wire.AllExtensions))
		f.Add(seed, uint8(25), uint8(0))
	}
	f.Fuzz(func(t *testing.T, raw string, minor, granted uint8) {
		v := wire.Version(minor % uint8(wire.MaxVersion+1))
		ext := wire.ExtensionSet(granted) & wire.AllExtensions
		cq, err := candidates.ReadURLQuery(raw, v, ext)
		if err != nil {
			var no *wire.QueryError
			if !errors.As(err, &no) {
				t.Errorf("%q gives %v", raw, err)
			}
			return
		}
		testproc.NoErrorf(t, sound(&cq, ext), "%q at %s with %s", raw, v, ext)
	})
}

// sound checks what candidates.Request demands.
func sound(cq *candidates.URLQuery, ext wire.ExtensionSet) error {
	if cq.Limit < 0 || cq.Limit > jsonkit.MaxExact {
		return fmt.Errorf("the limit is %d", cq.Limit)
	}
	suffixes := map[string]bool{}
	resources := false
	for _, g := range cq.Groups {
		if suffixes[g.Suffix] {
			return fmt.Errorf("there are two groups %q", g.Suffix)
		}
		suffixes[g.Suffix] = true
		classes := map[string]bool{}
		for _, r := range g.Resources {
			if classes[r.Class] || r.Amount < 1 || r.Amount > jsonkit.MaxExact {
				return fmt.Errorf("group %q asks for %d of %s", g.Suffix, r.Amount, r.Class)
			}
			classes[r.Class], resources = true, true
		}
		if g.Suffix == "" && len(g.Resources) == 0 && !ext.Has(wire.ExtResourceless) {
			return errors.New("the unsuffixed group has no resources")
		}
		for _, sets := range [][][]string{g.Required, g.MemberOf, cq.Root.MemberOf} {
			for _, set := range sets {
				if len(set) == 0 {
					return errors.New("there is an empty set")
				}
			}
		}
	}
	if !resources {
		return errors.New("there are no resources")
	}
	for _, set := range append(cq.SameSubtree, cq.Isolate) {
		seen := map[string]bool{}
		for _, suffix := range set {
			if suffix == "" || !suffixes[suffix] || seen[suffix] {
				return fmt.Errorf("%q is no group, or there twice", suffix)
			}
			seen[suffix] = true
		}
	}
	if cq.GroupPolicy == candidates.Isolate && len(cq.Isolate) > 0 || len(cq.Isolate) > 0 && !ext.Has(wire.ExtIsolate) {
		return errors.New("isolate should not be there")
	}
	if cq.Resourceless != ext.Has(wire.ExtResourceless) {
		return errors.New("resourceless is not as it was granted")
	}
	return nil
}

// BenchmarkReadCandidatesQuery shows that the cost of a query is linear in its length.
func BenchmarkReadCandidatesQuery(b *testing.B) {
	for _, groups := range []int{1, 10, 100, 600} {
		var q strings.Builder
		q.WriteString("group_policy=none")
		for i := range groups {
			fmt.Fprintf(&q, "&resources%d=VCPU:1,DISK_GB:2&required%d=A,!B&same_subtree=%d,0", i, i, i)
		}
		b.Run(fmt.Sprint(groups), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				testproc.Try(candidates.ReadURLQuery(q.String(), wire.MaxVersion, 0)).Or(b)
			}
		})
	}
}
