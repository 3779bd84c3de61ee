// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"encoding/json"
	"iter"
	"maps"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestSchemaNamesEveryFault: it is where an author finds out which faults there are.
func TestSchemaNamesEveryFault(t *testing.T) {
	var schema struct {
		Properties struct {
			Faults struct {
				Properties map[string]struct{ Description string }
			}
		}
	}
	testproc.Check(t, json.Unmarshal(WithFaults([]byte(`{"properties":{}}`)), &schema))
	described := schema.Properties.Faults.Properties
	for key := range (Config{}).calls() {
		for _, name := range faultsIn(key) {
			if !strings.Contains(described[key].Description, " "+name+": ") {
				t.Errorf("%s: %s is missing", key, name)
			}
		}
	}
	for _, name := range Reshapes[1:] {
		if !strings.Contains(described["reshape"].Description, name) {
			t.Errorf("reshape: %s is missing", name)
		}
	}
	seen := map[string]int{invalidEvents: 1}
	for _, names := range []iter.Seq[string]{maps.Keys(callFaults), maps.Keys(treeFaults),
		maps.Keys(listFaults), maps.Keys(instanceFaults)} {
		for name := range names {
			if seen[name]++; seen[name] > 1 {
				t.Errorf("%s is two faults", name)
			}
		}
	}
}
