// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/internal/libvirtd"
	"github.com/compute-agent/compute-agent/test/testhost"
)

// closeTimeout bounds the end of a simulation that [ForTest] started.
const closeTimeout = 30 * time.Second

// ForTest starts a simulation that ends with the test. Without root or libvirt the test is skipped,
// or fails where CI is set.
func ForTest(t testing.TB, h testhost.Host, o Options) *Sim {
	t.Helper()
	s, err := Start(t.Context(), h, o)
	if errors.Is(err, ErrNotRoot) || errors.Is(err, libvirtd.ErrNotInstalled) {
		if os.Getenv("CI") != "" {
			t.Fatalf("NOT TESTED, and CI must have it: %v", err)
		}
		t.Skipf("NOT TESTED: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return s
}
