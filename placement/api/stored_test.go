// SPDX-License-Identifier: Apache-2.0

package api_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/placement/store"
	"github.com/compute-agent/compute-agent/placement/transactor"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/placementtest"
	"github.com/compute-agent/compute-agent/test/testproc"
)

var template = dbservers.NewTemplate(func(dsn string) (*store.Store, error) {
	return store.Open(context.Background(), dsn, store.Options{Logger: zerolog.Nop()})
})

// openStored is a ledger on an empty database on the engine of the test. When the test has ended,
// the database has what the ledger had.
func openStored(t testing.TB) *transactor.Ledger {
	t.Helper()
	database := template.Fresh(t)
	open := func() *store.Store {
		return testproc.Try(store.Open(context.Background(), database, store.Options{Logger: zerolog.Nop()})).Or(t)
	}
	var had contents
	t.Cleanup(func() { // after the ledger is closed
		loaded := testproc.Try(transactor.Open(context.Background(), open(), transactor.Options{})).Or(t)
		testproc.Samef(t, cmp.Diff(had, contentsOf(t, loaded), cmpopts.EquateEmpty()), "the ledger -, what is loaded +")
		testproc.NoError(t, loaded.Close())
	})
	l := openOn(t, open())
	t.Cleanup(func() { had = contentsOf(t, l) })
	return l
}

// contents are all that a ledger has.
type contents struct {
	Dump placementtest.Dump
	Rows []string
}

func contentsOf(t testing.TB, l *transactor.Ledger) (c contents) {
	t.Helper()
	s, err := l.Snapshot(context.Background())
	if err == nil {
		c.Rows = placementtest.Rows(s)
		c.Dump, err = placementtest.DumpOf(s)
	}
	testproc.Check(t, err)
	return c
}
