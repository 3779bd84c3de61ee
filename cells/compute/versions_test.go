// SPDX-License-Identifier: Apache-2.0

package compute

import (
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestVersionDocuments: as Nova's, but for its v2.0, which is not here, and its highest
// microversion.
func TestVersionDocuments(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newCloud(t, Options{})
	withoutOld := func(list any) []any {
		var kept []any
		for _, v := range list.([]any) {
			if version := v.(map[string]any); version["id"] == "v2.1" {
				kept = append(kept, version)
			}
		}
		return kept
	}
	none := ours{why: "there is no v2.0", status: 300}
	c.replay(recordedCalls(t, "nova_versions.json"), map[string]ours{
		"v2": none, "v2-slash": none,
		"v21-mv-too-high": {
			why: "another highest", status: 406,
			says: "computeFault: Version 2.999 is not supported by the API. Minimum is 2.1 and maximum is 2.71.",
		},
	}, func(_ string, body any) any {
		document := body.(map[string]any)
		for _, name := range []string{"versions", "choices"} {
			if list, has := document[name]; has {
				document[name] = withoutOld(list)
			}
		}
		versions, _ := document["versions"].([]any)
		if one, has := document["version"]; has {
			versions = append(versions, one)
		}
		for _, v := range versions {
			if version := v.(map[string]any); version["version"] == "2.93" {
				version["version"] = "2.71"
			}
		}
		return document
	})
}

// TestVersionDocumentsNeedNoAuthentication: clients read them before they have a token, and find
// out from them where the API is.
func TestVersionDocumentsNeedNoAuthentication(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	c := newCloud(t, Options{Endpoint: "https://api.example.org/"})
	for _, tt := range []struct{ path, link string }{
		{"/", "https://api.example.org/v2.1/"}, {"/v2.1", "https://api.example.org/v2.1/"},
		{"/v2.1/", "https://api.example.org/v2.1/"},
	} {
		got := c.ask("", "", tt.path)
		version, _ := got.body["version"].(map[string]any)
		if versions, has := got.body["versions"].([]any); has {
			version = versions[0].(map[string]any)
		}
		if got.status != 200 || version["links"].([]any)[0].(map[string]any)["href"] != tt.link {
			t.Errorf("%s: %d %s", tt.path, got.status, got.text)
		}
	}
	// The list of versions has no microversion itself, and is not refused for an unknown one.
	got := c.ask("", "2.999", "/")
	if got.status != 200 || got.header.Get("OpenStack-API-Version") != "" {
		t.Errorf("GET /: %d %v", got.status, got.header)
	}
	got = c.ask("", "2.47", "/v2.1")
	testproc.Same(t, gocmp.Diff("compute 2.47", got.header.Get("OpenStack-API-Version")))
	// What begins as the API does is not found, and only for those who are known.
	for who, status := range map[string]int{"": 401, member: 404} {
		testproc.Equal(t, c.ask(who, "", "/v2.1/keypairs").status, status, "%q asks for what there is not: %d", who)
	}
}
