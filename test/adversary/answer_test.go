// SPDX-License-Identifier: Apache-2.0

package adversary

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/test/testproc"
)

var (
	update = flag.Bool("update", false, "write the tables of testdata again")
	nopLog = zerolog.Nop()
)

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
	headers      map[string]string
}

// send makes a request as an identity, and returns what came of it and the answer.
func send(t testing.TB, c *http.Client, url string, i identity, a asked) (outcome, string) {
	t.Helper()
	body := io.Reader(http.NoBody)
	if a.body != nil {
		text := testproc.Try(json.Marshal(a.body)).Or(t)
		body = bytes.NewReader(text)
	}
	r := testproc.Try(http.NewRequestWithContext(t.Context(), a.method, url+a.path, body)).Or(t)
	if a.body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	for name, value := range a.headers {
		r.Header.Set(name, value)
	}
	if i.token != "" {
		r.Header.Set("X-Auth-Token", i.token)
	}
	answer, err := c.Do(r)
	if err != nil {
		// TLS 1.3 tells a client that its certificate is refused after its side of the handshake.
		if strings.Contains(err.Error(), "tls:") || strings.Contains(err.Error(), "connection reset") || strings.Contains(err.Error(), "broken pipe") || strings.Contains(err.Error(), "EOF") {
			return noConnection, err.Error()
		}
		t.Fatalf("%s %s as %s: %v", a.method, a.path, i.name, err)
	}
	defer func() { _ = answer.Body.Close() }()
	text := testproc.Try(io.ReadAll(io.LimitReader(answer.Body, 1<<20))).Or(t)
	switch answer.StatusCode {
	case http.StatusUnauthorized:
		return unknown, string(text)
	case http.StatusForbidden:
		return forbidden, string(text)
	}
	if answer.StatusCode >= http.StatusInternalServerError && answer.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("%s %s as %s: %s %s", a.method, a.path, i.name, answer.Status, text)
	}
	return answered, answer.Status + " " + string(text)
}

// table collects what identities may do, and compares it with a file.
type table struct {
	t     *testing.T
	name  string
	heads []string
	rows  [][]string
}

func (b *table) compare() {
	b.t.Helper()
	var text bytes.Buffer
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{b.heads}, b.rows...) {
		testproc.Try(io.WriteString(w, strings.Join(row, "\t")+"\n")).Or(b.t)
	}
	check(b.t, w.Flush())
	lines := strings.Split(text.String(), "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	got, path := strings.Join(lines, "\n"), filepath.Join("testdata", b.name)
	if *update {
		check(b.t, os.MkdirAll("testdata", 0o755))         //nolint:gosec // a part of the repository
		check(b.t, os.WriteFile(path, []byte(got), 0o644)) //nolint:gosec // a part of the repository
	}
	want := testproc.Try(os.ReadFile(path)).Or(b.t)
	if diff := cmp.Diff(string(want), got); diff != "" {
		b.t.Errorf("%s differs; go test ./test/adversary -update writes it again (-kept +now):\n%s", path, diff)
	}
}
