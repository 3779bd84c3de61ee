// SPDX-License-Identifier: Apache-2.0

package sqldb_test

import (
	"errors"
	"testing"

	"github.com/compute-agent/compute-agent/internal/sqldb"
	"github.com/compute-agent/compute-agent/internal/sqldb/engine"
	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestDiagnose: what is seen of an empty database, of one with tables, of another program's, and of
// one that does not let its user in. Nothing is made.
func TestDiagnose(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dbservers.EachServer(t, func(t *testing.T, fresh func(testing.TB) string) {
		name := fresh(t)
		look := func() sqldb.Diagnosis {
			t.Helper()
			d := testproc.Try(sqldb.Diagnose(t.Context(), name, summed())).Or(t)
			if d.Facts["version"] == "" || d.Facts["client"] == "" || d.Facts["tls"] != "" ||
				d.Facts["transaction_isolation"]+d.Facts["tx_isolation"] == "" || d.Newest != 1 {
				t.Errorf("Diagnose: got %+v, want version, client and isolation, and step 1", d)
			}
			return d
		}
		for range 2 {
			if d := look(); d.Steps != 0 || d.Schema != nil || d.Write != nil {
				t.Errorf("empty: %+v", d)
			}
		}
		openSummed(t, name)
		if d := look(); d.Steps != 1 || d.Schema != nil || d.Write != nil {
			t.Errorf("with tables: %+v", d)
		}
		dbservers.Execute(t, name, "ALTER TABLE steps DROP COLUMN beat")
		if d := look(); d.Write == nil {
			t.Errorf("with a table that cannot be written: %+v", d)
		}
		dbservers.Execute(t, name, "ALTER TABLE steps RENAME TO others")
		if d := look(); !errors.Is(d.Schema, engine.ErrSchema) {
			t.Errorf("of another program: %+v", d)
		}
		proxy := dbservers.NewProxy(t, name)
		proxy.Close()
		if _, err := sqldb.Diagnose(t.Context(), proxy.DSN, summed()); !errors.Is(err, engine.ErrUnreachable) {
			t.Errorf("unreachable: %v", err)
		}
	})
}
