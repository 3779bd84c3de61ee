// SPDX-License-Identifier: Apache-2.0

package dbservers

import (
	"flag"
	"strings"
	"testing"
)

var long = flag.Bool("databases", false, "run the long tests with database servers: make test-databases")

// LongTest begins the name of each test that asks [Long]: make test-databases runs these.
const LongTest = "TestDatabases"

// Long reports whether a test with database servers is to run in full, as make test-databases has
// it, or as briefly as make test needs. The name of the test must begin with [LongTest].
func Long(t testing.TB) bool {
	t.Helper()
	if !strings.HasPrefix(t.Name(), LongTest) {
		t.Fatalf("the name of %s does not begin with %s: make test-databases would not run it", t.Name(), LongTest)
	}
	return *long
}
