// SPDX-License-Identifier: Apache-2.0

package store_test

import (
	"testing"

	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
	"github.com/compute-agent/compute-agent/placement/store"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestAlone: an offline migration and servers keep each other from a shared database, whichever
// came first; servers do not.
func TestAlone(t *testing.T) {
	t.Parallel()
	eachShared(t, func(t *testing.T, e testEngine) {
		testproc.Parallel(t, testproc.Light)
		name := e.fresh(t)
		opens := func(alone bool) *store.Store {
			t.Helper()
			return testproc.Try(store.Open(ctx, name, store.Options{Exclusive: alone})).Or(t)
		}
		refused := func(what string, alone bool) {
			t.Helper()
			s, err := store.Open(ctx, name, store.Options{Exclusive: alone})
			testproc.ErrorIs(t, err, engine.ErrInUse, "%s: %v", what)
			if err == nil {
				closes(t, s)
			}
		}
		first, second := opens(false), opens(false)
		refused("a migration beside two servers", true)
		closes(t, first)
		closes(t, second)
		migration := opens(true)
		refused("a server beside a migration", false)
		refused("a second migration", true)
		closes(t, migration)
		closes(t, opens(false))
	})
}

func closes(t *testing.T, s *store.Store) {
	t.Helper()
	testproc.NoError(t, s.Close())
}
