// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestReadQuery(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for raw, want := range map[string]Query{
		"":                    nil,
		"a=1":                 {{"a", "1"}},
		"a=1&a=2;b":           {{"a", "1"}, {"a", "2"}, {"b", ""}},
		"&&a=&=x&":            {{"a", ""}, {"", "x"}},
		"a=b=c":               {{"a", "b=c"}},
		"a+b=%20%2B+":         {{"a b", " + "}},
		"a=%zz%4&b=%e2%82%ac": {{"a", "%zz%4"}, {"b", "€"}},
	} {
		got, err := ReadQuery(raw)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%q: %v (-want +got):\n%s", raw, err, diff)
		}
	}
	for _, raw := range []string{"%ff", "a=%e2%82", strings.Repeat("a&", maxParameters+1)} {
		if _, err := ReadQuery(raw); err == nil {
			t.Errorf("%.20q is taken", raw)
		}
	}
}

// FuzzProviderQuery feeds whole query strings to the parser of the longest query there is. Whatever
// comes in, the only error is a 400, and what the standard library can read is read the same.
func FuzzProviderQuery(f *testing.F) {
	for _, seed := range []string{
		"", "name=a&uuid=4e8e5957-649f-477b-9e5b-f1f75b21c03c", "member_of=!in:4e8e5957649f477b9e5bf1f75b21c03c,x",
		"resources=VCPU:1,VCPU:%202",
		"required=in:A,B&required=!!C,%20D", "in_tree={4e8e5957-649f-477b-9e5b-f1f75b21c03c}", "a;b=%;c=%f",
		"resources=:::", "member_of=in:",
	} {
		f.Add(seed, uint8(MaxVersion), uint8(AllExtensions))
	}
	f.Fuzz(func(t *testing.T, raw string, minor, granted uint8) {
		v := Version(minor % uint8(MaxVersion+1))
		pq, err := ReadProviderQuery(raw, v, func() ExtensionSet { return ExtensionSet(granted) & AllExtensions })
		var no *QueryError
		if err != nil && !errors.As(err, &no) {
			t.Errorf("%q gives %v", raw, err)
		}
		for _, a := range pq.Resources {
			if err == nil && (a.Count < 1 || a.Count > jsonkit.MaxExact) {
				t.Errorf("%q asks for %d of %s", raw, a.Count, a.Class)
			}
		}
		std, stdErr := url.ParseQuery(raw)
		q, err := ReadQuery(raw)
		if err == nil && stdErr == nil {
			for key, values := range std {
				testproc.Samef(t, cmp.Diff(values, q.All(key)), "%q: %s (-std +ours)", raw, key)
			}
		}
	})
}

// TestRepeatedConditions: what a client repeats is asked of each provider once.
func TestRepeatedConditions(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	in := "in:" + strings.Repeat("9a1a5b4c-2b4c-4b5e-8d8a-000000000001,", 2) + "9a1a5b4c-2b4c-4b5e-8d8a-000000000002"
	raw := "required=A,A,!B,!B&required=in:C,C&required=in:C&member_of=" + in + "&member_of=" + in + "&member_of=!" + in
	got, err := ReadProviderQuery(raw, MaxVersion, func() ExtensionSet { return 0 })
	aggregates := []string{"9a1a5b4c-2b4c-4b5e-8d8a-000000000001", "9a1a5b4c-2b4c-4b5e-8d8a-000000000002"}
	want := Conditions{
		Required: [][]string{{"A"}, {"C"}}, Forbidden: []string{"B"},
		MemberOf: [][]string{aggregates}, NotMemberOf: aggregates,
	}
	if diff := cmp.Diff(want, got.Conditions); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// TestParametersOfExtensions: a parameter of an extension is there from its microversion on, for
// clients that get the extension. Parameters of no extension do not ask for them: the headers of
// their answers do not depend on them.
func TestParametersOfExtensions(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	granted := func() ExtensionSet { return ReadExtensions([]string{ExtIsolate}) }
	unasked := func() ExtensionSet { t.Error("asks for the extensions"); return 0 }
	for _, c := range []struct {
		Origin
		ext  func() ExtensionSet
		want bool
	}{
		{Origin{Since: RequiredFilter, Extension: ExtIsolate}, granted, true},
		{Origin{Since: RequiredFilter, Extension: ExtGroupPolicy}, granted, false},
		{Origin{Since: AnyTraits, Extension: ExtIsolate}, granted, false},
		{Origin{Since: RequiredFilter}, unasked, true},
		{Origin{Since: AnyTraits}, unasked, false},
	} {
		testproc.Equal(t, c.ExistsAt(Version(RequiredFilter), c.ext), c.want, "%+v is %v", c.Origin)
	}
}
