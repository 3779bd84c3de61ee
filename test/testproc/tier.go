// SPDX-License-Identifier: Apache-2.0

package testproc

import (
	"crypto/sha256"
	"encoding/binary"
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

// DrawnElsewhere begins the message of a test that other commits run.
const DrawnElsewhere = "not drawn: "

// Drawn leaves a long test to one of n commits, for each commit the same ones: by TEST_DRAW, which
// make test-real sets to the commit's hash, and the test's name. Without it, and in make nightly,
// the test runs. It is for what proves once more, with real processes, what other tests prove.
func Drawn(t testing.TB, n uint32) {
	t.Helper()
	commit := os.Getenv("TEST_DRAW")
	if commit == "" || Nightly() || drawn(commit, t.Name(), n) {
		return
	}
	t.Skipf("%sone of %d commits runs this, and so does TEST_DRAW= make test-real", DrawnElsewhere, n)
}

func drawn(commit, name string, n uint32) bool {
	sum := sha256.Sum256([]byte(commit + " " + name)) // with a simpler one, tests are always drawn together
	return binary.BigEndian.Uint32(sum[:])%n == 0
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
		seed = rand.Uint64()
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
		return fmt.Errorf(
			"the test is marked as flaky since %s, for more than 14 days: find what chance decides, and "+
				"remove the mark", date)
	}
	return nil
}
