// SPDX-License-Identifier: Apache-2.0

package api

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestReadQuery(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for raw, want := range map[string]parameters{
		"":                    nil,
		"a=1":                 {{"a", "1"}},
		"a=1&a=2;b":           {{"a", "1"}, {"a", "2"}, {"b", ""}},
		"&&a=&=x&":            {{"a", ""}, {"", "x"}},
		"a=b=c":               {{"a", "b=c"}},
		"a+b=%20%2B+":         {{"a b", " + "}},
		"a=%zz%4&b=%e2%82%ac": {{"a", "%zz%4"}, {"b", "€"}},
	} {
		got, err := readQuery(raw)
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(parameter{})); err != nil || diff != "" {
			t.Errorf("%q: %v (-want +got):\n%s", raw, err, diff)
		}
	}
	for _, raw := range []string{"%ff", "a=%e2%82", strings.Repeat("a&", maxParameters+1)} {
		if _, err := readQuery(raw); err == nil {
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
		f.Add(seed, uint8(39), uint8(allExtensions))
	}
	f.Fuzz(func(t *testing.T, raw string, minor, granted uint8) {
		v := wire.Version(minor % uint8(wire.MaxVersion+1))
		pq, err := readProviderQuery(raw, v, func() extensions { return extensions(granted) & allExtensions })
		var no *osapi.Error
		if err != nil && (!errors.As(err, &no) || no.Status != http.StatusBadRequest) {
			t.Errorf("%q gives %v", raw, err)
		}
		for _, a := range pq.resources {
			if err == nil && (a.count < 1 || a.count > jsonkit.MaxExact) {
				t.Errorf("%q asks for %d of %s", raw, a.count, a.class)
			}
		}
		std, stdErr := url.ParseQuery(raw)
		q, err := readQuery(raw)
		if err == nil && stdErr == nil {
			for key, values := range std {
				testproc.Samef(t, cmp.Diff(values, q.all(key)), "%q: %s (-std +ours)", raw, key)
			}
		}
	})
}

func TestReadAccept(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for header, want := range map[string]accepted{
		"":                                   {1, 0.5},
		"application/json":                   {1, 0.5},
		"text/html":                          {0, 1},
		"APPLICATION/JSON;q=0.3":             {0.3, 0},
		"*/*;q=0.2, application/json;q=0":    {0, 0.2},
		"application/*;q=0.4,*/*;q=0.9":      {0.4, 0.9},
		"text/plain":                         {0, 0},
		"json":                               {1, 0.5},
		"application/json;q=7":               {1, 0.5},
		"application/json;v=1;q=0.5, text/*": {0.5, 1},
	} {
		testproc.Equal(t, readAccept(header), want, "%q is read as %v", header)
	}
}

func FuzzAccept(f *testing.F) {
	f.Add("text/html,application/xhtml+xml,*/*;q=0.8")
	f.Add("a/b;q=1;q=0,,;/")
	f.Fuzz(func(t *testing.T, header string) {
		if a := readAccept(header); a.json < 0 || a.json > 1 || a.html < 0 || a.html > 1 {
			t.Errorf("%q is read as %v", header, a)
		}
	})
}

func TestVersionDocumentIsOfThisAPI(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	want := `{"versions":[{"id":"v1.0","max_version":"` + wire.MaxVersion.String() +
		`","min_version":"1.0","status":"CURRENT",` +
		`"links":[{"rel":"self","href":""}]}]}`
	if string(versionDocument) != want {
		t.Errorf("got  %s\nwant %s", versionDocument, want)
	}
}

// TestRepeatedConditions: what a client repeats is asked of each provider once.
func TestRepeatedConditions(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	in := "in:" + strings.Repeat("9a1a5b4c-2b4c-4b5e-8d8a-000000000001,", 2) + "9a1a5b4c-2b4c-4b5e-8d8a-000000000002"
	raw := "required=A,A,!B,!B&required=in:C,C&required=in:C&member_of=" + in + "&member_of=" + in + "&member_of=!" + in
	got, err := readProviderQuery(raw, wire.MaxVersion, func() extensions { return 0 })
	aggregates := []string{"9a1a5b4c-2b4c-4b5e-8d8a-000000000001", "9a1a5b4c-2b4c-4b5e-8d8a-000000000002"}
	want := conditions{
		required: [][]string{{"A"}, {"C"}}, forbidden: []string{"B"},
		memberOf: [][]string{aggregates}, notMemberOf: aggregates,
	}
	if diff := cmp.Diff(want, got.conditions, cmp.AllowUnexported(conditions{})); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}
