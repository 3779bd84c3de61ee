// SPDX-License-Identifier: Apache-2.0

package reportclient_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/reportclient"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func newClient(t *testing.T, url string, change ...func(*reportclient.Config)) *reportclient.Client {
	t.Helper()
	cfg := reportclient.Config{Config: placementclient.Config{URL: url, Transport: http.DefaultTransport,
		Logger: zerolog.Nop(), Timeout: 5 * time.Second}}
	for _, c := range change {
		c(&cfg)
	}
	return testproc.Try(reportclient.New(cfg)).Or(t)
}

const versionDocument = `{"versions": [{"id": "v1.0", "max_version": "1.39", "min_version": "1.0", "status": ` +
	`"CURRENT", "links": []}]}`

// TestUUIDsOfAnswers: what is no UUID in an answer does not become part of the path of another
// request.
func TestUUIDsOfAnswers(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	const strange = "../../traits/CUSTOM_X"
	root := fmt.Sprintf(`{"uuid": %q, "name": "cn1", "generation": 1, "parent_provider_uuid": null}`, id(1))
	for name, list := range map[string]string{
		"a provider": root + fmt.Sprintf(`, {"uuid": %q, "name": "child", "generation": 1, "parent_provider_uuid": %q}`,
			strange, id(1)),
		"a parent": root + fmt.Sprintf(`, {"uuid": %q, "name": "child", "generation": 1, "parent_provider_uuid": %q}`,
			id(2), strange),
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
					_, _ = fmt.Fprintf(w,
						`{"allocations": {%q: {"resources": {"VCPU": 1}}}, "resource_provider_generation": 1}`, strange)
				default:
					_, _ = io.WriteString(w,
						`{"inventories": {}, "traits": [], "aggregates": [], "resource_provider_generation": 1}`)
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
