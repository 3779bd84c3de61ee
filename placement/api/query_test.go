// SPDX-License-Identifier: Apache-2.0

package api

import (
	"testing"

	"github.com/compute-agent/compute-agent/placement/wire"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestReadAccept(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	for header, want := range map[string]acceptQuality{
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
