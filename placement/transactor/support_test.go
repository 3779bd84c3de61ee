// SPDX-License-Identifier: Apache-2.0

package transactor_test

import (
	"context"
	"testing"

	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/placement/transactor"
	"github.com/compute-agent/compute-agent/test/testproc"
)

var ctx = context.Background()

func open(t testing.TB, store ledger.Store) *transactor.Ledger {
	t.Helper()
	l := testproc.Try(transactor.Open(ctx, store, transactor.Options{})).Or(t)
	t.Cleanup(func() { testproc.NoError(t, l.Close()) })
	return l
}

func must(t *testing.T, l *transactor.Ledger, fn func(*ledger.Tx) error) {
	t.Helper()
	testproc.Try(l.Update(ctx, fn)).Or(t)
}

func create(name string) func(*ledger.Tx) error {
	return func(tx *ledger.Tx) error {
		_, err := tx.CreateProvider(ledger.NewProvider{UUID: name, Name: name})
		return err
	}
}
