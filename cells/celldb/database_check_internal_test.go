// SPDX-License-Identifier: Apache-2.0

package celldb

import (
	"context"
	"path/filepath"
	"testing"

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
