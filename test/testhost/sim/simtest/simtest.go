// SPDX-License-Identifier: Apache-2.0

// Package simtest starts simulated hosts for tests: they end with the test, and where one cannot be had, that is said.
package simtest

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/internal/libvirtd"
	"github.com/compute-agent/compute-agent/test/testhost"
	"github.com/compute-agent/compute-agent/test/testhost/sim"
)

// closing is how long the end of a simulation may take.
const closing = 30 * time.Second

// Start starts a simulation that ends with the test. Without root or libvirt the test is skipped, and fails where CI is set.
func Start(t testing.TB, h testhost.Host, o sim.Options) *sim.Sim {
	t.Helper()
	s, err := sim.Start(t.Context(), h, o)
	if errors.Is(err, sim.ErrNotRoot) || errors.Is(err, libvirtd.ErrNotInstalled) {
		if os.Getenv("CI") != "" {
			t.Fatalf("NOT TESTED, and CI must have it: %v", err)
		}
		t.Skipf("NOT TESTED: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), closing)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return s
}
