// SPDX-License-Identifier: Apache-2.0

package drivertest

import "context"

// TestingT is the part of *testing.T that [Run] uses. It keeps package testing out of programs that
// link the suite.
type TestingT[T any] interface {
	Context() context.Context
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Helper()
	Run(name string, f func(T)) bool
	Skipf(format string, args ...any)
}

// Run runs the suite on a plugin, each check as a subtest of t, which is a *testing.T. It fails t
// if the plugin fails a check or cannot be tested.
func Run[T TestingT[T]](t T, opts Options) {
	t.Helper()
	report, err := Execute(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range report.Results {
		t.Run(r.ID, func(t T) {
			switch r.Outcome {
			case Failed:
				t.Errorf("%s", r.Explain())
			case NotRun:
				t.Skipf("not run: %s", r.Why)
			case Passed:
			}
		})
	}
}
