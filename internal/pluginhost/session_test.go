// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestSession: a process of one's own, from a directory that an agent would not trust, is there to
// be called and then gone.
func TestSession(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newRig(t)
	open := filepath.Join(t.TempDir(), "open")
	testproc.Check(t, os.Mkdir(open, 0o700))
	testproc.Check(t, os.Chmod(open, 0o777))
	path := filepath.Join(open, "compute-driver-fake")
	testproc.Check(t, copyFile(fakePath, path))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := testproc.Try(r.Open(ctx, Spec{Name: "mine", Path: path})).Or(t)
	info, err := s.Plugin().Info(ctx, &driverv1.InfoRequest{})
	if err != nil || info.GetName() != "fake" {
		t.Errorf("Info: %v, %v", info, err)
	}
	testproc.NoErrorf(t, s.End(), "End")
	waitGone(t, s.PID())
	s.Kill() // does nothing any more

	if _, err := r.Open(ctx, Spec{Name: "mine", Path: open}); err == nil {
		t.Error("a directory was started")
	}
	if _, err := r.Open(ctx, Spec{Name: "mine", Path: filepath.Join(open, "nobody")}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
}

// TestSessionCatchesUp: the lines that a process wrote before it answered are in the log after
// CatchUp.
func TestSessionCatchesUp(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	r := newRig(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	spec := chaosSpec("", nil)
	spec.Timeouts.Handshake = patience / 2
	s := testproc.Try(r.Open(ctx, spec)).Or(t)
	defer s.Kill()
	for n := 1; n <= 50; n++ {
		testproc.Try(s.Plugin().Configure(ctx, &driverv1.ConfigureRequest{})).Or(t)
		testproc.Check(t, s.CatchUp(ctx))
		if told := strings.Count(r.log.String(), `"configuring"`); told != n {
			t.Fatalf("after %d calls that log a line each, %d lines were in the log", n, told)
		}
	}
	s.Kill()
	testproc.NoErrorf(t, s.CatchUp(ctx), "after the end of the process")
}
