// SPDX-License-Identifier: Apache-2.0

package celldb_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/cells/celldb"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestCheck: a database that lacks a table or a column, or that is another cell's by now, is not
// whole, and is whole again when that is back. What does not matter to answers, as an index, does
// not matter to it.
func TestCheck(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	path := filepath.Join(t.TempDir(), "cell.db")
	s := open(t, path)
	defer func() { closeStore(t, s) }()
	whole := func() {
		t.Helper()
		for range 2 {
			testproc.Check(t, s.Check(ctx))
		}
	}
	whole()
	for _, c := range []struct{ breaks, fixes, says string }{
		{"ALTER TABLE instances RENAME TO x", "ALTER TABLE x RENAME TO instances",
			"of the table instances; stop the cell and restore a backup"},
		{"ALTER TABLE services RENAME TO x", "ALTER TABLE x RENAME TO services", "of the table services"},
		{"ALTER TABLE compute_nodes RENAME TO x", "ALTER TABLE x RENAME TO compute_nodes",
			"of the table compute_nodes"},
		{"ALTER TABLE cell RENAME TO x", "ALTER TABLE x RENAME TO cell", "no such table: cell"},
		{"ALTER TABLE instances RENAME COLUMN metadata TO x", "ALTER TABLE instances RENAME COLUMN x TO metadata",
			"no column metadata of the table instances"},
		{"UPDATE cell SET epoch = epoch || 'x'", "UPDATE cell SET epoch = rtrim(epoch, 'x')",
			"replaced by another database"},
	} {
		execute(t, path, c.breaks)
		for range 2 {
			if err := s.Check(ctx); !errors.Is(err, celldb.ErrUnavailable) || !strings.Contains(err.Error(), path) ||
				!strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v", c.breaks, err)
			}
		}
		execute(t, path, c.fixes)
		whole()
	}
	execute(t, path, "DROP INDEX instances_usage", "CREATE TABLE extra (i INTEGER)")
	whole()
	execute(t, path, "DROP TABLE instances")
	closeStore(t, s)
	s = open(t, path)
	testproc.ErrorIs(t, s.Check(ctx), celldb.ErrUnavailable, "opened without a table: %v")
}
