// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// points is how many of the points at which something may fail are tried outside of make nightly.
const points = 8

// drawn draws n of the numbers below all, in their order; make nightly takes all of them.
func drawn(t *testing.T, n, all int) []int {
	t.Helper()
	numbers := rand.New(rand.NewPCG(testproc.Seed(t), 0)).Perm(all)
	if !testproc.Nightly() {
		numbers = numbers[:min(n, all)]
	}
	slices.Sort(numbers)
	return numbers
}

// serverEngines are the engines of database servers on which a test runs: outside of make
// test-databases the one that -database names, by default MariaDB.
func serverEngines(t *testing.T, long bool) map[string]func(testing.TB) string {
	t.Helper()
	all := map[string]func(testing.TB) string{"mariadb": dbservers.MariaDB, "postgresql": dbservers.PostgreSQL}
	engine := dbservers.Engine(t)
	if all[engine] == nil {
		engine = "mariadb"
	}
	if !long {
		return map[string]func(testing.TB) string{engine: all[engine]}
	}
	return all
}
