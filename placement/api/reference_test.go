// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"bytes"
	"flag"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/compute-agent/compute-agent/placement/api"
	"github.com/compute-agent/compute-agent/test/golden"
	"github.com/compute-agent/compute-agent/test/openapi"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestReferenceIsCurrent compares docs/api-placement.md and the OpenAPI document with the route
// table.
func TestReferenceIsCurrent(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	reference := api.Reference()
	golden.Text(t, "../../docs/api-placement.md", string(openapi.Markdown(reference)))
	document := testproc.Try(openapi.Write(reference)).Or(t)
	golden.Text(t, "../../docs/openapi/placement.json", string(document))
}

// document is the OpenAPI document that all exchanges of these tests are compared with.
var document = sync.OnceValues(func() (*openapi.Document, error) {
	text, err := openapi.Write(api.Reference())
	if err != nil {
		return nil, err
	}
	return openapi.Load(text)
})

// compare compares an exchange with the document.
func (c call) compare(t testing.TB, w *httptest.ResponseRecorder) {
	t.Helper()
	d := testproc.Try(document()).Or(t)
	if c.path == "/healthz" || c.path == "/readyz" { // for operators, and not part of the API
		return
	}
	r := httptest.NewRequest(c.method, c.path, nil)
	_, version, _ := strings.Cut(w.Header().Get("OpenStack-API-Version"), " ")
	if err := d.Check(&openapi.Exchange{
		Request: r, Sent: []byte(c.body), Version: version,
		Status: w.Code, Answer: w.Body.Bytes(), AnswerHeaders: w.Header(),
		Malformed: bytes.Contains(w.Body.Bytes(), []byte("JSON does not validate: ")),
	}); err != nil {
		t.Errorf("OpenAPI document: %v", err)
	}
}

// TestMain fails if all tests together leave a successful answer of the document without an
// exchange, or a member of one without a value. With -database, tests leave out some of their
// cases, and what these have.
func TestMain(m *testing.M) {
	os.Exit(openapi.Complete(m.Run(), document, func(d *openapi.Document) []string {
		if flag.Lookup("database").Value.String() != "" {
			return d.Missing()
		}
		return append(d.Missing(), d.MissingMembers()...)
	}))
}
