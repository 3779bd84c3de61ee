// SPDX-License-Identifier: Apache-2.0

package cellwire_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/plugins"
)

// TestServersKeepTheirForm: databases hold this, and cells of other versions send it.
func TestServersKeepTheirForm(t *testing.T) {
	s := cellwire.Server{
		UUID: "u", Flavor: cellwire.Flavor{ID: "1", Flavor: plugins.Flavor{
			Name: "n", VCPUs: 1, MemoryMB: 2, RootGB: 3,
			EphemeralGB: 4, SwapMB: 5, ExtraSpecs: map[string]string{"a": "b"},
		}},
		PowerState: plugins.PowerShutdown,
	}
	const want = `{"uuid":"u","project_id":"","user_id":"","name":"",` +
		`"flavor":{"flavorid":"1","name":"n","vcpus":1,"memory_mb":2,"root_gb":3,"ephemeral_gb":4,"swap":5,` +
		`"extra_specs":{"a":"b"}},` +
		`"vm_state":"","power_state":4,"created_at":"0001-01-01T00:00:00Z"}`
	text, err := json.Marshal(s)
	if err != nil || string(text) != want {
		t.Errorf("%v\n got %s\nwant %s", err, text, want)
	}
	var back cellwire.Server
	if err := json.Unmarshal([]byte(want), &back); err != nil || !cmp.Equal(back, s) {
		t.Errorf("decoding the server: %v: %s", err, cmp.Diff(s, back))
	}
}
