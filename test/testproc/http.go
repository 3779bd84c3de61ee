// SPDX-License-Identifier: Apache-2.0

package testproc

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"testing"
)

// Reply is the answer to a request.
type Reply struct {
	Request string
	Code    int
	Body    []byte
}

func (r *Reply) String() string { return fmt.Sprintf("%s: %d %s", r.Request, r.Code, r.Body) }

// Send sends a request as an administrator, of a version such as "placement 1.39", and ends the
// test if there is no answer. The client may be nil. The body is nil, a text, or what becomes JSON;
// headers are more of them, each a name and a value. One without a value is not sent: a host that
// shows its certificate has no token.
func Send(t testing.TB, client *http.Client, method, url, version string, body any, headers ...string) *Reply {
	t.Helper()
	var content []byte
	switch b := body.(type) {
	case nil:
	case string:
		content = []byte(b)
	default:
		content = Try(json.Marshal(b)).Or(t)
	}
	req := Try(http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(content))).Or(t)
	req.Header.Set("X-Auth-Token", "admin")
	req.Header.Set("OpenStack-API-Version", version)
	if len(content) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
		if headers[i+1] == "" {
			req.Header.Del(headers[i])
		}
	}
	if client == nil {
		client = http.DefaultClient
	}
	resp, err := client.Do(req)
	Checkf(t, err, "%s %s", method, url)
	defer func() { _ = resp.Body.Close() }()
	return &Reply{Request: method + " " + url, Code: resp.StatusCode, Body: Try(io.ReadAll(resp.Body)).Or(t)}
}

// Good ends the test unless the request succeeded.
func (r *Reply) Good(t testing.TB) *Reply {
	t.Helper()
	if r.Code >= http.StatusMultipleChoices {
		t.Fatal(r)
	}
	return r
}

// Into decodes the body, unless out is nil.
func (r *Reply) Into(t testing.TB, out any) {
	t.Helper()
	if out != nil {
		Checkf(t, json.Unmarshal(r.Body, out), "%s", r)
	}
}
