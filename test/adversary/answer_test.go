// SPDX-License-Identifier: Apache-2.0

package adversary

import (
	"cmp"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/test/golden"
	"github.com/compute-agent/compute-agent/test/testproc"
	"github.com/compute-agent/compute-agent/test/world"
)

var (
	check  = testproc.Check
	nopLog = zerolog.Nop()
)

type object = world.Record

// outcome is how a service meets a request.
type outcome string

const (
	noConnection outcome = "handshake" // the TLS handshake is refused
	unknown      outcome = "401"
	forbidden    outcome = "403"
	answered     outcome = "answered" // whatever the answer is
)

// asked is one request.
type asked struct {
	method, path string
	body         any
	version      string // that of Placement without one
}

func get(path string) asked            { return asked{method: http.MethodGet, path: path} }
func put(path string, body any) asked  { return asked{method: http.MethodPut, path: path, body: body} }
func post(path string, body any) asked { return asked{method: http.MethodPost, path: path, body: body} }

// noTLS is in the errors of a client whose certificate is refused. TLS 1.3 tells it after its side
// of the handshake.
var noTLS = regexp.MustCompile(`tls:|connection reset|broken pipe|EOF`)

// send makes a request as an identity, and returns what came of it and the answer.
func send(t testing.TB, c *http.Client, url string, i identity, a asked) (outcome, *world.Answer) {
	t.Helper()
	header := http.Header{"Openstack-Api-Version": {cmp.Or(a.version, microversion)}}
	if i.token != "" {
		header.Set("X-Auth-Token", i.token)
	}
	answer, err := world.Exchange(t.Context(), c, a.method, url+a.path, header, a.body)
	switch {
	case err != nil && noTLS.MatchString(err.Error()):
		return noConnection, &world.Answer{Request: err.Error()}
	case err != nil:
		t.Fatalf("%s %s as %s: %v", a.method, a.path, i.name, err)
	case answer.Code == http.StatusUnauthorized:
		return unknown, answer
	case answer.Code == http.StatusForbidden:
		return forbidden, answer
	case answer.Code >= http.StatusInternalServerError && answer.Code != http.StatusServiceUnavailable:
		t.Errorf("as %s: %s", i.name, answer)
	}
	return answered, answer
}

// succeed makes a request that must succeed.
func succeed(t testing.TB, c *http.Client, url string, i identity, a asked) *world.Answer {
	t.Helper()
	_, answer := send(t, c, url, i, a)
	if answer.Code/100 != 2 {
		t.Fatalf("as %s: %s", i.name, answer)
	}
	return answer
}

// table collects what identities may do, and compares it with a file.
type table [][]string

func (tb table) compare(t testing.TB, name string) {
	t.Helper()
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, row := range tb {
		testproc.Try(fmt.Fprintln(w, strings.Join(row, "\t"))).Or(t)
	}
	check(t, w.Flush())
	got := regexp.MustCompile(` +\n`).ReplaceAllString(text.String(), "\n")
	golden.Text(t, filepath.Join("testdata", name), got)
}
