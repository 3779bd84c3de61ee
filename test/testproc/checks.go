// SPDX-License-Identifier: Apache-2.0

package testproc

import (
	"flag"
	"strconv"
	"testing"
)

// Checks has the properties of a test be checked at most so many times outside of make nightly: for
// one whose checks take long. The number is that of the process, so the test must not be parallel.
func Checks(t testing.TB, most int) {
	t.Helper()
	checks := flag.Lookup("rapid.checks")
	if checks == nil {
		t.Fatal("the package does not use rapid")
	}
	before := checks.Value.String()
	if n, err := strconv.Atoi(before); Nightly() || err == nil && n <= most {
		return
	}
	Check(t, checks.Value.Set(strconv.Itoa(most)))
	t.Cleanup(func() { Check(t, checks.Value.Set(before)) })
}
