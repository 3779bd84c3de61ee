// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/compute-agent/compute-agent/plugins/drivertest"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/test/testproc"
)

const changesModes = "changes the mode of its own file"

// chmods is a driver that works where nothing keeps it from changing the modes of files.
var chmods = around("Configure", func(_ *raw, ctx context.Context, req any, next func() (any, error)) (any, error) {
	file := filepath.Join(req.(*driverv1.ConfigureRequest).GetHost().GetStateDir(), "socket")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		return nil, err
	}
	if err := os.Chmod(file, 0o660); err != nil {
		return nil, err
	}
	return next()
})

// TestDriversRunInTheSandbox that the agent starts them in, and without one only if that is asked
// for: what would fail on a host fails here.
func TestDriversRunInTheSandbox(t *testing.T) {
	t.Parallel()
	path := writeScript(t)
	for name, c := range map[string]struct {
		change func(*drivertest.Options)
		want   drivertest.Outcome
	}{
		"the agent's": {func(*drivertest.Options) {}, drivertest.Failed},
		"one of its own": {func(o *drivertest.Options) { o.Sandbox = &drivertest.Sandbox{Modes: true} },
			drivertest.Passed},
		"none": {func(o *drivertest.Options) { o.NoSandbox = true }, drivertest.Passed},
	} {
		t.Run(name, func(t *testing.T) {
			testproc.Parallel(t, testproc.Light)
			opts := alone[changesModes].options(path, changesModes)
			opts.Limits, opts.Select = patient, regexp.MustCompile("^config/accepted$")
			c.change(&opts)
			report := testproc.Try(drivertest.Execute(t.Context(), opts)).Or(t)
			if len(report.Results) != 1 || report.Results[0].Outcome != c.want {
				t.Errorf("%+v", report.Results)
			}
			if report.Unconfined() != opts.NoSandbox || report.Sandbox == "" {
				t.Errorf("it ran in %q", report.Sandbox)
			}
			if c.want == drivertest.Failed && !strings.Contains(report.Results[0].Came, "operation not permitted") {
				t.Errorf("%s", report.Results[0].Explain())
			}
		})
	}
}

// TestFormerReleaseRunsInTheSandbox, too: its tree is that which it made on hosts.
func TestFormerReleaseRunsInTheSandbox(t *testing.T) {
	t.Parallel()
	opts := drivertest.Options{Path: fakePath, FormerPath: writeScript(t),
		Env: map[string]string{brokenKey: changesModes}, Config: json.RawMessage(layoutConfig("flat"))}
	_, err := drivertest.Execute(t.Context(), opts)
	testproc.ErrorHas(t, err, "rejects its configuration", "%v")
}
