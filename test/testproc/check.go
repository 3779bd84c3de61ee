// SPDX-License-Identifier: Apache-2.0

package testproc

// T is what Check needs of a test, a benchmark or a property.
type T interface {
	Helper()
	Fatal(args ...any)
}

// Check ends the test if there is an error.
func Check(t T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}
