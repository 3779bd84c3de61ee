// SPDX-License-Identifier: Apache-2.0

package world

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// Record is an object of JSON.
type Record = map[string]any

// Caller is the identity of a client.
type Caller struct{ User, Project, Roles string }

// Of is a member of a project.
func Of(project string) Caller { return Caller{"u-" + project, project, "member,reader"} }

// AdminOf is an administrator in a project.
func AdminOf(project string) Caller { return Caller{"u-" + project, project, "admin,member,reader"} }

// Admin has no servers, unless it makes some.
var Admin = AdminOf("operators")

// Header are the headers of a request to the compute API.
func (c Caller) Header(version string) http.Header {
	h := http.Header{}
	h.Set("X-Auth-Token", c.User+":"+c.Project)
	h.Set("X-Roles", c.Roles)
	h.Set("Openstack-Api-Version", "compute "+version)
	return h
}

// Answer is what was answered.
type Answer struct {
	Request string
	Code    int
	Header  http.Header
	Raw     []byte
}

func (a *Answer) String() string { return fmt.Sprintf("%s: %d %.600s", a.Request, a.Code, a.Raw) }

// Exchange sends a request. An error says that no whole answer came.
func Exchange(
	ctx context.Context, client *http.Client, method, url string, header http.Header, body any,
) (*Answer, error) {
	content := io.Reader(http.NoBody)
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, url, content)
	if err != nil {
		return nil, err
	}
	maps.Copy(req.Header, header)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	a := &Answer{Request: method + " " + url, Code: resp.StatusCode, Header: resp.Header}
	if a.Raw, err = io.ReadAll(resp.Body); err != nil {
		return nil, fmt.Errorf("%s: %w", a.Request, err)
	}
	return a, nil
}

// Is checks the status.
func (a *Answer) Is(t testing.TB, code int) *Answer {
	t.Helper()
	if a.Code != code {
		t.Fatalf("%s, not %d", a, code)
	}
	return a
}

// Into decodes the body.
func (a *Answer) Into(t testing.TB, out any) *Answer {
	t.Helper()
	testproc.Checkf(t, json.Unmarshal(a.Raw, out), "%s", a)
	return a
}

// List is the list of a name in an answer that succeeded.
func (a *Answer) List(t testing.TB, name string) (list []Record) {
	t.Helper()
	body := map[string]json.RawMessage{}
	a.Is(t, http.StatusOK).Into(t, &body)
	testproc.Check(t, json.Unmarshal(body[name], &list))
	return list
}

// Server is the one that was shown.
func (a *Answer) Server(t testing.TB) Record {
	t.Helper()
	var body struct{ Server Record }
	a.Is(t, http.StatusOK).Into(t, &body)
	return body.Server
}

// Fault checks that the answer is a refusal of Nova's form, and returns its message.
func (a *Answer) Fault(t testing.TB, name string, code int) string {
	t.Helper()
	var body map[string]struct {
		Code    int
		Message string
	}
	a.Is(t, code).Into(t, &body)
	f, is := body[name]
	if !is || len(body) != 1 || f.Code != code || f.Message == "" {
		t.Fatalf("%s: not a %s with code %d and a message", a, name, code)
	}
	return f.Message
}
