// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestSameID: where ids in either case mean one row, that row is found and shown by its own id; of
// several such rows, as a restored database can have them, each is found by its own id.
func TestSameID(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	state := &ledger.State{
		SameID:    strings.ToLower,
		Classes:   []ledger.NamedRow{{ID: 0, Name: "VCPU"}},
		Projects:  []ledger.NamedRow{{ID: 2, Name: "BOTH"}, {ID: 1, Name: "both"}, {ID: 3, Name: "One"}},
		Users:     []ledger.NamedRow{{ID: 1, Name: "user"}},
		Providers: []ledger.ProviderRow{{ID: 1, UUID: "host", Name: "host", Root: 1}},
		Consumers: []ledger.ConsumerRow{
			{ID: 1, UUID: "a", Generation: 1, Project: 1, User: 1},
			{ID: 2, UUID: "b", Generation: 1, Project: 2, User: 1},
			{ID: 3, UUID: "c", Generation: 1, Project: 3, User: 1},
		},
	}
	for _, c := range state.Consumers {
		state.Allocations = append(state.Allocations,
			ledger.AllocationRow{Provider: 1, Class: 0, Consumer: c.UUID, Used: 1})
	}
	s := testproc.Try(ledger.NewSnapshot(state)).Or(t)
	for project, want := range map[string]string{"both": "[a]", "BOTH": "[b]", "Both": "[a]", "one": "[c]",
		"ONE": "[c]", "other": "[]"} {
		got := []string{}
		for c := range s.ConsumersOf(project) {
			got = append(got, c.UUID)
		}
		if fmt.Sprint(got) != want {
			t.Errorf("project %s has %v, want %s", project, got, want)
		}
	}
	for id, want := range map[string]string{"user": "user", "USER": "user", "Another": "Another"} {
		testproc.Equal(t, s.User(id), want, "user %s is known as %s", id)
	}
}
