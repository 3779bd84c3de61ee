// SPDX-License-Identifier: Apache-2.0

package reportclient_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/reportclient"
)

func newClient(t *testing.T, url string, change ...func(*reportclient.Config)) *reportclient.Client {
	t.Helper()
	cfg := reportclient.Config{Config: placementclient.Config{URL: url, Transport: http.DefaultTransport, Logger: zerolog.Nop(), Timeout: 5 * time.Second}}
	for _, c := range change {
		c(&cfg)
	}
	c, err := reportclient.New(cfg)
	ok(t, err)
	return c
}

const versionDocument = `{"versions": [{"id": "v1.0", "max_version": "1.39", "min_version": "1.0", "status": "CURRENT", "links": []}]}`

// TestAnswers: whatever answers in Placement's stead, the error says what it was in terms that a caller can act upon.
func TestAnswers(t *testing.T) {
	placementError := func(status int, code, detail string) string {
		return fmt.Sprintf(`{"errors": [{"status": %d, "code": %q, "detail": %q, "request_id": "req-x"}]}`, status, code, detail)
	}
	cases := []struct {
		name   string
		status int
		body   string
		want   error
		says   string
	}{
		{"a generation conflict", 409, placementError(409, "placement.concurrent_update", "generation"), reportclient.ErrConflict, "placement.concurrent_update"},
		{"a conflict without code", 409, placementError(409, "placement.undefined_code", "race"), reportclient.ErrConflict, "race"},
		{"inventory in use", 409, placementError(409, "placement.inventory.inuse", "VCPU in use"), reportclient.ErrInventoryInUse, "VCPU in use"},
		{"a provider in use", 409, placementError(409, "placement.resource_provider.inuse", "x"), reportclient.ErrProviderInUse, ""},
		{"a parent", 409, placementError(409, "placement.resource_provider.cannot_delete_parent", "x"), reportclient.ErrProviderInUse, ""},
		{"a name that is taken", 409, placementError(409, "placement.duplicate_name", "x"), reportclient.ErrDuplicate, ""},
		{"no such thing", 404, placementError(404, "", "no rp"), reportclient.ErrNotFound, "no rp"},
		{"no token", 401, "Authentication required", reportclient.ErrRefused, "Authentication required"},
		{"the wrong role", 403, placementError(403, "", "forbidden"), reportclient.ErrRefused, "forbidden"},
		{"a bad request", 400, placementError(400, "", "bad"), reportclient.ErrInvalid, "bad"},
		{"a broken server", 500, "<html>\n<h1>Oops</h1>", reportclient.ErrUnavailable, "<html> <h1>Oops</h1>"},
		{"a login page", 200, "<html>please log in</html>", reportclient.ErrUnexpected, "please log in"},
		{"somebody else's JSON", 200, `{"hello": "world"}`, reportclient.ErrUnexpected, "version document"},
		{"a redirect to who knows where", 302, "", reportclient.ErrUnexpected, "302"},
		{"a Placement of long ago", 200, strings.Replace(versionDocument, "1.39", "1.36", 1), reportclient.ErrTooOld, "1.37"},
		{"a version that is none", 200, strings.Replace(versionDocument, "1.39", "latest", 1), reportclient.ErrUnexpected, "latest"},
		{"an error that is no UTF-8", 418, "\xff\xfe", reportclient.ErrUnexpected, "418"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("X-Openstack-Request-Id", "req-server")
				if c.status == http.StatusFound {
					w.Header().Set("Location", "http://192.0.2.1/")
				}
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			}))
			defer server.Close()
			_, err := newClient(t, server.URL).Tree(t.Context(), id(1), "cn1")
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %v and %q", err, c.want, c.says)
			}
			var failed *reportclient.RequestError
			if errors.As(err, &failed) && !strings.HasPrefix(failed.Error(), "GET /: ") {
				t.Errorf("the request is not named: %v", failed)
			}
		})
	}
}

func TestNobodyListens(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	addr := l.Addr().String()
	ok(t, l.Close())
	_, err = newClient(t, "http://"+addr).Tree(t.Context(), id(1), "cn1")
	if !errors.Is(err, reportclient.ErrUnavailable) || !strings.Contains(err.Error(), "refused") {
		t.Error(err)
	}
}

func TestAnswerBreaksOff(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(w, versionDocument[:50])
	}))
	defer server.Close()
	if _, err := newClient(t, server.URL).Tree(t.Context(), id(1), "cn1"); !errors.Is(err, reportclient.ErrUnavailable) {
		t.Error(err)
	}
}

// TestUUIDsOfAnswers: what is no UUID in an answer does not become part of the path of another request.
func TestUUIDsOfAnswers(t *testing.T) {
	const strange = "../../traits/CUSTOM_X"
	root := fmt.Sprintf(`{"uuid": %q, "name": "cn1", "generation": 1, "parent_provider_uuid": null}`, id(1))
	for name, list := range map[string]string{
		"a provider": root + fmt.Sprintf(`, {"uuid": %q, "name": "child", "generation": 1, "parent_provider_uuid": %q}`, strange, id(1)),
		"a parent":   root + fmt.Sprintf(`, {"uuid": %q, "name": "child", "generation": 1, "parent_provider_uuid": %q}`, id(2), strange),
		"a consumer": root,
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var paths []string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				paths = append(paths, r.Method+" "+r.RequestURI)
				mu.Unlock()
				switch {
				case r.URL.Path == "/":
					_, _ = io.WriteString(w, versionDocument)
				case r.URL.Path == "/resource_providers":
					_, _ = fmt.Fprintf(w, `{"resource_providers": [%s]}`, list)
				case strings.HasSuffix(r.URL.Path, "/allocations"):
					_, _ = fmt.Fprintf(w, `{"allocations": {%q: {"resources": {"VCPU": 1}}}, "resource_provider_generation": 1}`, strange)
				default:
					_, _ = io.WriteString(w, `{"inventories": {}, "traits": [], "aggregates": [], "resource_provider_generation": 1}`)
				}
			}))
			defer server.Close()
			client := newClient(t, server.URL)
			_, err := client.Tree(t.Context(), id(1), "cn1")
			if name == "a consumer" {
				ok(t, err)
				_, err = client.AllocationsForProviderTree(t.Context(), id(1))
			}
			if !errors.Is(err, reportclient.ErrUnexpected) || !strings.Contains(err.Error(), strange) {
				t.Errorf("got %v, want ErrUnexpected that names it", err)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, path := range paths {
				if strings.Contains(path, "CUSTOM_X") {
					t.Errorf("it was asked for %s", path)
				}
			}
		})
	}
}
