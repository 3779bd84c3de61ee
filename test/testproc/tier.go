// SPDX-License-Identifier: Apache-2.0

package testproc

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

// NotTested begins the message of a test that the machine cannot run. Package test/gate lists them.
const NotTested = "NOT TESTED: "

// NotRun ends a test that needs what this machine does not have: the test is skipped, and fails
// where CI is set. why says what is missing and how to get it.
func NotRun(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatal(NotTested + why)
	}
	t.Skip(NotTested + why)
}

// Nightly reports whether a test runs in full, as part of make nightly, and not as part of make
// test or make test-real.
func Nightly() bool { return os.Getenv("TEST_TIER") == "nightly" }

// OnlyNightly skips a test outside of make nightly.
func OnlyNightly(t testing.TB) {
	t.Helper()
	if !Nightly() {
		t.Skip("make nightly runs this")
	}
}

// Seed returns the seed of what a test draws, and logs it. It follows from the name of the test, so
// that a test does the same each time, unless TEST_SEED is a number, or "random".
func Seed(t testing.TB) uint64 {
	t.Helper()
	var seed uint64
	switch chosen := os.Getenv("TEST_SEED"); chosen {
	case "":
		h := fnv.New64a()
		_, _ = h.Write([]byte(t.Name())) // never fails
		seed = h.Sum64()
	case "random":
		seed = rand.Uint64() //nolint:gosec // chance, not secrets
	default:
		n, err := strconv.ParseUint(chosen, 10, 64)
		Check(t, err)
		seed = n
	}
	t.Logf("seed: TEST_SEED=%d", seed)
	return seed
}

// flakyFor is how long a test may be flaky.
const flakyFor = 14 * 24 * time.Hour

// FlakyTest begins the log line of a test that is marked as flaky.
const FlakyTest = "FLAKY: "

// Flaky marks a test that fails by chance, for a reason, since a date (YYYY-MM-DD): test/gate runs
// it once more if it fails, and counts that. After 14 days the test fails.
func Flaky(t testing.TB, reason, date string) {
	t.Helper()
	if err := flakySince(date, time.Now()); err != nil {
		t.Fatal(err)
	}
	t.Log(FlakyTest + reason)
}

func flakySince(date string, now time.Time) error {
	since, err := time.Parse(time.DateOnly, date)
	if err != nil {
		return err
	}
	if now.Sub(since) > flakyFor {
		return fmt.Errorf("the test is marked as flaky since %s, for more than 14 days: find what chance decides, and remove the mark", date)
	}
	return nil
}
