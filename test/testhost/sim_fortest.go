// SPDX-License-Identifier: Apache-2.0

package testhost

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/internal/libvirtd"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// closeTimeout bounds the end of a simulation that [SimForTest] started.
const closeTimeout = 3 * time.Minute

// SimForTest starts a simulation that ends with the test. Without root or libvirt the test does
// not run.
func SimForTest(t testing.TB, h Host, o SimOptions) *Sim {
	t.Helper()
	s, err := StartSim(t.Context(), h, o)
	if errors.Is(err, ErrNotRoot) || errors.Is(err, libvirtd.ErrNotInstalled) {
		testproc.NotRun(t, err.Error())
	}
	testproc.Check(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		testproc.NoError(t, s.Close(ctx))
	})
	return s
}
