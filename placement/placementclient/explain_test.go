// SPDX-License-Identifier: Apache-2.0

package placementclient_test

import (
	"testing"

	"github.com/compute-agent/compute-agent/placement/placementclient"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestCleanQuery: a query is found in a line of a log, escaped once, and in the order of its
// groups.
func TestCleanQuery(t *testing.T) {
	for text, want := range map[string]string{
		"resources=VCPU:1":                                "resources=VCPU%3A1",
		"resources=VCPU%3A1&limit=5":                      "resources=VCPU%3A1&limit=5",
		"http://log/allocation_candidates?a=1&b=2":        "a=1&b=2",
		`"GET /allocation_candidates?a=1" status: 200`:    "a=1",
		"&resources_B=VGPU:1&resources_A=CUSTOM_É:1":      "resources_B=VGPU%3A1&resources_A=CUSTOM_%C3%89%3A1",
		"  resources=VCPU:1  ":                            "resources=VCPU%3A1",
		"GET /allocation_candidates? resources=VCPU:1 ok": "resources=VCPU%3A1",
	} {
		got := testproc.Try(placementclient.CleanQuery(text)).Or(t)
		if got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	for _, text := range []string{"", "resources", "required=CUSTOM_A,CUST…", "a=%zz"} {
		if got, err := placementclient.CleanQuery(text); err == nil {
			t.Errorf("%q: got %q, want an error", text, got)
		}
	}
}
