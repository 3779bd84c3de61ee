// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/internal/pluginhost/driverclient"
	"github.com/compute-agent/compute-agent/internal/pluginhost/launch"
	"github.com/compute-agent/compute-agent/test/testproc"
)

func TestWrongDigestIsNeverExecuted(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newRig(t)
	spec := chaosSpec("", nil)
	spec.SHA256 = strings.Repeat("ab", 32)
	_, err := r.start(spec)
	if !errors.Is(err, launch.ErrUntrusted) || !errors.Is(err, driverclient.ErrUnavailable) {
		t.Errorf("want launch.ErrUntrusted, got %v", err)
	}
	if got := r.plugins["chaos"].Status(); got.State != Refused || !strings.Contains(got.LastError, spec.SHA256) ||
		!strings.Contains(got.LastError, "drivers.chaos.sha256") {
		t.Errorf("status: %+v", got)
	}
	for _, s := range r.seen() {
		if s.State == Starting {
			t.Error("it was started")
		}
	}
}

func TestDigestOfTheRealOneIsAccepted(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newRig(t)
	digest := r.mustStart(chaosSpec("", nil)).Status().SHA256
	testproc.Check(t, r.Remove(context.Background(), r.plugins["chaos"]))
	spec := chaosSpec("", nil)
	spec.SHA256 = strings.ToUpper(digest)
	r.mustStart(spec)
}
