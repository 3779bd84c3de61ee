// SPDX-License-Identifier: Apache-2.0

package testproc

// Few is a property for rapid.Check that is checked at most so many times outside of make nightly:
// one whose checks take long. After a failure it is checked as often as rapid needs to find a small
// example.
func Few[T interface{ Failed() bool }](maxChecks int, property func(T)) func(T) {
	if Nightly() {
		return property
	}
	checks, failed := 0, false
	return func(t T) {
		if checks == maxChecks && !failed {
			return
		}
		passed := false
		defer func() {
			checks++
			failed = failed || !passed
		}()
		property(t)
		passed = !t.Failed()
	}
}
