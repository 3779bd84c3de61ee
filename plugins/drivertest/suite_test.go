// SPDX-License-Identifier: Apache-2.0

package drivertest_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/plugins/drivertest"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestAnInterruptedSuiteNamesTheWholePath of a plugin whose path is relative.
func TestAnInterruptedSuiteNamesTheWholePath(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	path := testproc.Try(filepath.Abs("suite.go")).Or(t)
	_, err := drivertest.Execute(ctx, drivertest.Options{Path: "./suite.go"})
	if !errors.Is(err, context.Canceled) || !strings.HasPrefix(err.Error(), "testing "+path+": ") {
		t.Errorf("got %v, want it to name %s", err, path)
	}
}
