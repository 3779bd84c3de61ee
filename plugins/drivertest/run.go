// SPDX-License-Identifier: Apache-2.0

package drivertest

import "testing"

// Run puts the suite to a plugin as subtests, one per check. It fails t if the plugin fails a check, and when it cannot be examined.
func Run(t *testing.T, opts Options) {
	t.Helper()
	report, err := Execute(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range report.Results {
		t.Run(r.ID, func(t *testing.T) {
			switch r.Outcome {
			case Failed:
				t.Errorf("%s", r.Explain())
			case DoesNotApply:
				t.Skipf("does not apply: %s", r.Why)
			case Passed:
			}
		})
	}
}
