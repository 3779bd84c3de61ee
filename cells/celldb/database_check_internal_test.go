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
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "cell.db"), "cell1", Options{})
	testproc.Check(t, err)
	defer func() { testproc.Check(t, s.Close()) }()
	for range s.kit.Reader.Stats().MaxOpenConnections {
		list, err := s.kit.Reader.Conn(t.Context())
		testproc.Check(t, err)
		defer func() { testproc.Check(t, list.Close()) }()
	}
	ctx, cancel := context.WithTimeout(t.Context(), testproc.Patience)
	defer cancel()
	testproc.Check(t, s.Check(ctx))
	_, err = s.Info(ctx)
	testproc.Check(t, err)
}
