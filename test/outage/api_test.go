// SPDX-License-Identifier: Apache-2.0

package outage

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells/compute"
	"github.com/compute-agent/compute-agent/test/openapi"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// api is a process of the compute API.
type api struct {
	world   *world
	process *testproc.Process
	config  string
	url     string
}

// caller is the identity of a client.
type caller struct{ user, project, roles string }

// of is a member of a project, adminOf an administrator in it, readerOf a reader.
func of(project string) caller       { return caller{"u-" + project, project, "member,reader"} }
func adminOf(project string) caller  { return caller{"u-" + project, project, "admin,member,reader"} }
func readerOf(project string) caller { return caller{"r-" + project, project, "reader"} }

// admin has no servers.
var admin = adminOf("operators")

// answer is what was answered.
type answer struct {
	request string
	code    int
	header  http.Header
	raw     []byte
	took    time.Duration
}

// A test that hangs is given up by the deadline of the client.
var web = &http.Client{Timeout: patience, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}

// exchange sends one request.
func exchange(t *testing.T, method, target string, header http.Header, body any) *answer {
	t.Helper()
	return exchangeBy(t, web, method, target, header, body)
}

func exchangeBy(t *testing.T, client *http.Client, method, target string, header http.Header, body any) *answer {
	t.Helper()
	var content io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		check(t, err)
		content = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(t.Context(), method, target, content)
	check(t, err)
	maps.Copy(req.Header, header)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	began := time.Now()
	resp, err := client.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, target, err)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, target, err)
	}
	return &answer{request: method + " " + target, code: resp.StatusCode, header: resp.Header, raw: raw, took: time.Since(began)}
}

// ask sends a request to the compute API; path is below /v2.1.
func (a *api) ask(t *testing.T, who caller, version, method, path string, body any) *answer {
	t.Helper()
	return a.askWith(t, who, http.Header{"Openstack-Api-Version": {"compute " + version}}, method, path, body)
}

func (a *api) askWith(t *testing.T, who caller, header http.Header, method, path string, body any) *answer {
	t.Helper()
	header = header.Clone()
	header.Set("X-Auth-Token", who.user+":"+who.project)
	header.Set("X-Roles", who.roles)
	got := exchange(t, method, a.url+"/v2.1"+path, header, body)
	got.fits(t, method, "/v2.1"+path, body)
	return got
}

// document is the OpenAPI document of the compute API.
var document = sync.OnceValues(func() (*openapi.Document, error) {
	text, err := compute.Reference().OpenAPI()
	if err != nil {
		return nil, err
	}
	return openapi.Load(text)
})

// fits compares the exchange with the OpenAPI document.
func (a *answer) fits(t *testing.T, method, path string, body any) {
	t.Helper()
	d, err := document()
	check(t, err)
	target, err := url.Parse(path)
	check(t, err)
	var sent []byte
	if body != nil {
		sent, err = json.Marshal(body)
		check(t, err)
	}
	if err := d.Check(&openapi.Exchange{
		Request: &http.Request{Method: method, URL: target}, Sent: sent,
		Version: a.header.Get("X-OpenStack-Nova-API-Version"), Status: a.code, Answer: a.raw, AnswerHeaders: a.header,
	}); err != nil {
		t.Errorf("OpenAPI document: %v", err)
	}
}

// get is ask for GET.
func (a *api) get(t *testing.T, who caller, version, path string) *answer {
	t.Helper()
	return a.ask(t, who, version, "GET", path, nil)
}

// status checks the status.
func (a *answer) status(t *testing.T, want int) *answer {
	t.Helper()
	if a.code != want {
		t.Fatalf("%s: status %d, not %d: %s", a.request, a.code, want, a.raw)
	}
	return a
}

func (a *answer) decode(t *testing.T, out any) {
	t.Helper()
	if err := json.Unmarshal(a.raw, out); err != nil {
		t.Fatalf("%s: %v in %q", a.request, err, a.raw)
	}
}

// record is an object of JSON.
type record = map[string]any

// servers are those of a list that succeeded, services likewise.
func (a *answer) servers(t *testing.T) []record {
	t.Helper()
	a.status(t, 200)
	var body struct{ Servers []record }
	a.decode(t, &body)
	return body.Servers
}

func (a *answer) services(t *testing.T) []record {
	t.Helper()
	a.status(t, 200)
	var body struct{ Services []record }
	a.decode(t, &body)
	return body.Services
}

// server is the one that was shown.
func (a *answer) server(t *testing.T) record {
	t.Helper()
	a.status(t, 200)
	var body struct{ Server record }
	a.decode(t, &body)
	return body.Server
}

// next is the link to the next page, "" without one.
func (a *answer) next(t *testing.T) string {
	t.Helper()
	var body struct {
		Links []struct{ Rel, Href string } `json:"servers_links"`
	}
	a.decode(t, &body)
	for _, l := range body.Links {
		if l.Rel == "next" {
			return l.Href
		}
	}
	return ""
}

// fault checks that the answer is a refusal of Nova's form, and returns its message.
func (a *answer) fault(t *testing.T, name string, code int) string {
	t.Helper()
	a.status(t, code)
	var body map[string]struct {
		Code    int
		Message string
	}
	a.decode(t, &body)
	f, is := body[name]
	if !is || len(body) != 1 || f.Code != code || f.Message == "" {
		t.Fatalf("%s: not a %s with code %d and a message: %s", a.request, name, code, a.raw)
	}
	return f.Message
}

// within checks how long it took.
func (a *answer) within(t *testing.T, most time.Duration) *answer {
	t.Helper()
	if a.took > most {
		t.Errorf("%s took %v, more than %v", a.request, a.took, most)
	}
	return a
}

// keys are the keys of a record, sorted.
func keys(r record) []string { return slices.Sorted(maps.Keys(r)) }

// isUnknown says whether a record of a list is that of a cell that is down.
func isUnknown(r record) bool { return r["status"] == "UNKNOWN" }

// server states in lists are compared by name: "web1" for a full record, "web1?" for one of a cell
// that is down.
func (w *world) named(t *testing.T, servers []record) []string {
	t.Helper()
	out := []string{}
	for _, s := range servers {
		name := w.name(s["id"])
		if isUnknown(s) {
			if _, has := s["name"]; has {
				t.Errorf("%s is UNKNOWN and has a name", name)
			}
			name += "?"
		} else if s["name"] != name {
			t.Errorf("the server %s is named %v", name, s["name"])
		}
		out = append(out, name)
	}
	return out
}

func (w *world) name(id any) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if name := w.names[fmt.Sprint(id)]; name != "" {
		return name
	}
	return fmt.Sprintf("<%v>", id)
}

// id is the uuid of a server by its name.
func (w *world) id(t *testing.T, name string) string {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for id, n := range w.names {
		if n == name {
			return id
		}
	}
	t.Fatalf("there is no server %q", name)
	return ""
}

// field is a string of a log line.
func field(t *testing.T, line, name string) string {
	t.Helper()
	var fields map[string]any
	check(t, json.Unmarshal([]byte(line), &fields))
	text, is := fields[name].(string)
	if !is {
		t.Fatalf("no %s in %s", name, line)
	}
	return text
}
