// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/resourcetracker"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestConditionsAreLoggedOnce: when they appear and when they are over, with fields to find them
// by.
func TestConditionsAreLoggedOnce(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	var log bytes.Buffer
	dir := t.TempDir()
	testproc.Check(t, os.WriteFile(filepath.Join(dir, "agent.toml"),
		[]byte(fmt.Sprintf("[agent]\nstate_dir = %q\nruntime_dir = %q\n", dir, dir)), 0o600))
	cfg := testproc.Try(config.Load(config.Options{File: filepath.Join(dir, "agent.toml"), Environ: []string{}})).Or(t)
	a := testproc.Try(New(Options{Config: cfg, Logger: zerolog.New(&log)})).Or(t)
	lines := func() []string {
		out := []string{}
		for l := range strings.Lines(log.String()) {
			var f struct{ Level, Condition, Severity, Subject, Driver, Hint, Message string }
			testproc.Check(t, json.Unmarshal([]byte(l), &f))
			if f.Condition != "" {
				out = append(out, fmt.Sprintf("%s %s %s %s/%s %t %s", f.Level, f.Condition, f.Severity, f.Subject,
					f.Driver, f.Hint != "", told(f.Message)))
			}
		}
		log.Reset()
		return out
	}
	see := func(name string, want ...string) {
		t.Helper()
		for range 3 {
			a.currentStatus()
		}
		testproc.Samef(t, cmp.Diff(want, lines()), "%s", name)
	}
	see("an agent without drivers", "error no-driver critical agent/ true Health: …")
	a.conditions.problems.configured("libvirt", errors.New("uri: no such host"))
	a.conditions.problems.reloaded(nil, errors.New("line 3"))
	see("a reload is refused", "warn reload-refused warning agent/ true Health: …",
		"warn driver-configuration-refused warning driver libvirt/libvirt true Health: …")
	a.conditions.problems.reloaded([]config.Change{{Key: "tracker.pass_deadline"}, {Key: "plugins.dir", Restart: true}},
		nil)
	see("the next one waits for a restart", "info restart-needed info agent/ true Health: …",
		"info reload-refused warning agent/ false Health: resolved",
		"info driver-configuration-refused warning driver libvirt/libvirt false Health: resolved")
	a.drivers.add(&driver{name: "old"})
	see("a driver is gone", "info driver-disabled info driver old/old true Health: …")
	if s := a.currentStatus(); s.State != resourcetracker.Degraded ||
		s.Summary != "degraded: no driver is configured" || len(s.Conditions) != 3 {
		t.Errorf("%s: %s: %v", s.State, s.Summary, s.Conditions)
	}
}

// told is how a message begins.
func told(message string) string {
	if strings.HasPrefix(message, "Health: resolved: ") {
		return "Health: resolved"
	}
	return strings.ReplaceAll(message[:8], "Health: ", "Health: …")
}

func TestWritable(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	dir := t.TempDir()
	testproc.Equal(t, writable(dir), "", "writable: %v")
	testproc.Contains(t, writable(filepath.Join(dir, "none")), "none", "writable: %q")
}
