// SPDX-License-Identifier: Apache-2.0

package celldb

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestChecksWaitForNoList: that a cell can answer is seen although all connections for lists are in
// use for long.
func TestChecksWaitForNoList(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	s := testproc.Try(Open(t.Context(), filepath.Join(t.TempDir(), "cell.db"), "cell1", Options{})).Or(t)
	defer func() { testproc.Check(t, s.Close()) }()
	for range s.kit.Reader.Stats().MaxOpenConnections {
		list := testproc.Try(s.kit.Reader.Conn(t.Context())).Or(t)
		defer func() { testproc.Check(t, list.Close()) }()
	}
	ctx, cancel := context.WithTimeout(t.Context(), testproc.Patience)
	defer cancel()
	testproc.Check(t, s.Check(ctx))
	testproc.Try(s.Info(ctx)).Or(t)
}

// TestTablesAreDocumented: the package's documentation lists the tables of the schema.
func TestTablesAreDocumented(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	tables := []string{"processes"} // in no file
	for _, c := range testproc.Try(expected()).Or(t) {
		tables = append(tables, c.table)
	}
	slices.Sort(tables)
	var listed []string
	doc := string(testproc.Try(os.ReadFile("doc.go")).Or(t))
	for _, line := range regexp.MustCompile(`(?m)^//\t[ │├└─]*(\w+)`).FindAllStringSubmatch(doc, -1) {
		listed = append(listed, line[1])
	}
	slices.Sort(listed)
	testproc.Same(t, gocmp.Diff(slices.Compact(tables), listed))
}
