// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/plugins/drivertest"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// brokenPlugin is a plugin with one defect, and the check that must find it; or, if it passes, one
// that only looks as if it had that defect.
type brokenPlugin struct {
	check          string
	passes         bool
	config, former string // layoutConfig("numa") if empty
	also           string // a check that must run before for the defect to show
	only           bool   // no other check of a reshape finds the defect
	hangs          bool   // a call does not return: the suite waits for it
	breakage
}

var breakages = map[string]brokenPlugin{}

// broken adds plugins to breakages.
func broken(more map[string]brokenPlugin) struct{} {
	for name, b := range more {
		breakages[name] = b
	}
	return struct{}{}
}

// script hides the cookie from the SDK's init, so that the broken plugins are served without the
// SDK.
const script = "#!/bin/sh\nunset COMPUTE_DRIVER_COOKIE\nexec "

func writeScript(t *testing.T) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "compute-driver-raw")
	self := testproc.Try(os.Executable()).Or(t)
	testproc.Check(t, testproc.WriteExecutable(name, []byte(script+"'"+self+"'\n")))
	return name
}

func (b brokenPlugin) options(path, name string) drivertest.Options {
	config := b.config
	if config == "" {
		config = layoutConfig("numa")
	}
	limits := patient
	if b.hangs {
		limits = drivertest.Timeouts{
			Health: 500 * time.Millisecond, Update: 2 * time.Second, Instance: 2 * time.Second,
			Nodes: 2 * time.Second, Stop: 2 * time.Second,
		}
	}
	return drivertest.Options{
		Path: path, Instances: &drivertest.InstanceTemplate{}, Config: json.RawMessage(config),
		Former: json.RawMessage(b.former), Env: map[string]string{brokenKey: name},
		Limits: limits,
	}
}

func TestEachCheckFailsAPluginWithItsDefect(t *testing.T) {
	t.Parallel()
	path := writeScript(t)
	caught := map[string]bool{}
	for name, b := range breakages {
		caught[b.check] = caught[b.check] || !b.passes
		t.Run(name, func(t *testing.T) {
			testproc.Parallel(t, testproc.Light)
			opts := b.options(path, name)
			opts.Select = regexp.MustCompile("^(" + regexp.QuoteMeta(b.check) + "|" + regexp.QuoteMeta(b.also) + ")$")
			if b.only {
				opts.Select = regexp.MustCompile("^(tree|reshape|layouts|abilities)/")
			}
			report := testproc.Try(drivertest.Execute(t.Context(), opts)).Or(t)
			for _, r := range report.Results {
				switch {
				case r.ID != b.check && b.only && r.Outcome == drivertest.Failed:
					t.Errorf("%s found it, too:\n%s", r.ID, r.Explain())
				case r.ID != b.check:
				case b.passes && r.Outcome == drivertest.Passed:
				case b.passes:
					t.Errorf("%s: %s\n%s", r.ID, r.Outcome, r.Explain())
				case r.Outcome != drivertest.Failed:
					t.Errorf("%s: %s %s", r.ID, r.Outcome, r.Why)
				case r.Sent == "" || r.Came == "" || r.Rule == "" || r.See == "" || r.Protects == "":
					t.Errorf("%s: a field is empty:\n%s", r.ID, r.Explain())
				default:
					t.Log("\n" + r.Explain())
				}
			}
		})
	}
	for _, c := range drivertest.Suite() {
		if !caught[c.ID] {
			t.Errorf("no broken plugin fails %s", c.ID)
		}
	}
}

func TestRawPluginWithoutDefectPasses(t *testing.T) {
	t.Parallel()
	path := writeScript(t)
	for name, b := range map[string]brokenPlugin{"layout": {}, "numbered": {config: numbered(4), former: numbered(1)}} {
		t.Run(name, func(t *testing.T) {
			testproc.Parallel(t, testproc.Light)
			opts := b.options(path, "")
			opts.Limits = patient
			report := testproc.Try(drivertest.Execute(t.Context(), opts)).Or(t)
			for _, r := range report.Results {
				if r.Outcome == drivertest.Failed {
					t.Errorf("%s\n%s", r.ID, r.Explain())
				}
			}
		})
	}
}

// around is a breakage of calls of one kind.
func around(call string, f func(s *raw, ctx context.Context, req any, next func() (any, error)) (any, error)) breakage {
	return breakage{around: func(s *raw, ctx context.Context, c string, req any,
		next func() (any, error)) (any, error) {
		if c == call {
			return f(s, ctx, req, next)
		}
		return next()
	}}
}

// instead returns another response.
func instead[T any](call string, reply T) breakage {
	return around(call, func(*raw, context.Context, any, func() (any, error)) (any, error) { return reply, nil })
}

// after changes successful responses.
func after[Req, Reply any](call string, change func(s *raw, req Req, reply Reply)) breakage {
	return around(call, func(s *raw, _ context.Context, req any, next func() (any, error)) (any, error) {
		reply, err := next()
		if err == nil {
			change(s, req.(Req), reply.(Reply))
		}
		return reply, err
	})
}

// fails returns an error.
func fails(call string, err error) breakage {
	return around(call, func(*raw, context.Context, any, func() (any, error)) (any, error) { return nil, err })
}
