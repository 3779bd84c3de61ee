// SPDX-License-Identifier: Apache-2.0

package apidb_test

import (
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/cells/apidb"
)

// testConsoleTokens: a token leads every process to its server until it expires or the server is
// deleted; those that are expired go when others come.
func testConsoleTokens(t *testing.T, e testEngine) {
	stores := e.processes(t)
	s, other := stores[0], stores[len(stores)-1]
	later := time.Now().Add(time.Hour)
	must(t, s.AddConsoleToken(ctx, "one", "a", later))
	must(t, s.AddConsoleToken(ctx, "two", "b", later))
	must(t, s.AddConsoleToken(ctx, "past", "a", time.Now().Add(-time.Hour)))
	wantError(t, "without a server", s.AddConsoleToken(ctx, "x", "", later), apidb.ErrInvalid)
	wants[string](t, "one")(other.ConsoleToken(ctx, "one"))("a")
	wants[string](t, "two")(other.ConsoleToken(ctx, "two"))("b")
	for _, token := range []string{"", "past", "ONE", "none"} {
		_, err := s.ConsoleToken(ctx, token)
		wantError(t, token, err, apidb.ErrNotFound)
	}
	must(t, s.SetQueued(ctx, map[string]bool{"a": true, "b": false}))
	_, err := other.ConsoleToken(ctx, "one")
	wantError(t, "that of a deleted server", err, apidb.ErrNotFound)
	wants[string](t, "that of a living server")(other.ConsoleToken(ctx, "two"))("b")
}
