// SPDX-License-Identifier: Apache-2.0

package oracle_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/compute-agent/compute-agent/test/dbservers"
	"github.com/compute-agent/compute-agent/test/oracle"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// The flags of make oracle.
var (
	duration = flag.Duration("oracle.time", 0, "how long TestOracle compares; 0: not at all")
	steps    = flag.Int("oracle.steps", 0, "how many requests TestOracle sends at most; 0: no limit")
	seed     = flag.Uint64("oracle.seed", 0, "the seed of the first world; 0: one from the clock")
	parallel = flag.Int("oracle.parallel", 1, "how many pairs of services run beside each other")
	profile  = flag.String("oracle.profile", "", "mixed or nasty; empty: both in turn")
	out      = flag.String("oracle.dir", "", "where the scripts of differences are written")
	findings = flag.Int("oracle.findings", 10, "how many different differences end the comparison")
)

// services starts one of each, for as long as the test runs; ours on the engine of the test.
func services(t *testing.T) (*oracle.Real, *oracle.Ours) {
	t.Helper()
	return oracle.NewReal(t), newOurs(t)
}

func newOurs(t *testing.T) *oracle.Ours {
	t.Helper()
	database := dbservers.Fresh(t)
	ours := testproc.Try(oracle.NewOurs(t.Context(), database, func() { dbservers.Empty(t, database) })).Or(t)
	t.Cleanup(func() { testproc.NoError(t, ours.Close()) })
	return ours
}

// compare runs a plan, and reports what it found as failures of the test.
func compare(t *testing.T, real *oracle.Real, ours *oracle.Ours, plan oracle.Plan) *oracle.Result {
	t.Helper()
	plan.Found = func(f *oracle.Finding) {
		t.Errorf("The services differ:\n%s", f.Rendered)
		if *out != "" {
			path := filepath.Join(*out, fmt.Sprintf("difference-%s-%d-%d.txt", plan.Profile.Name, f.Seed, f.Step()))
			testproc.NoError(t, os.WriteFile(path, []byte(f.Rendered), 0o600))
		}
	}
	result, err := oracle.Run(t.Context(), real, ours, plan)
	testproc.NoError(t, err)
	return result
}

// TestFixedSeed is a short comparison, which is the same each time but for make nightly.
func TestFixedSeed(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	if *duration > 0 {
		t.Skip("TestOracle compares for longer.")
	}
	real, ours := services(t)
	plan := oracle.Plan{Seed: 1, Requests: 700}
	if testproc.Nightly() {
		plan.Seed = testproc.Seed(t)
	}
	compareSome(t, real, ours, plan)
}

// TestOnServers compares less than TestFixedSeed, with ours on each database server.
func TestOnServers(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	real := oracle.NewReal(t)
	dbservers.Brief(t, func(t *testing.T) { compareSome(t, real, newOurs(t), oracle.Plan{Seed: 2, Requests: 150}) })
}

// compareSome runs a plan for both profiles.
func compareSome(t *testing.T, real *oracle.Real, ours *oracle.Ours, plan oracle.Plan) {
	t.Helper()
	plan.Stride, plan.Findings, plan.ShrinkRequests = 1, 3, 1500
	for _, p := range []oracle.Profile{oracle.Mixed, oracle.Nasty} {
		t.Run(p.Name, func(t *testing.T) {
			plan.Profile = p
			result := compare(t, real, ours, plan)
			if result.Counts.Requests < plan.Requests && !t.Failed() {
				t.Errorf("only %d requests were compared", result.Counts.Requests)
			}
		})
	}
}

// TestOracle compares for the time of -oracle.time.
func TestOracle(t *testing.T) {
	t.Parallel()
	if *duration <= 0 && *steps <= 0 {
		t.Skip("It is run by make oracle.")
	}
	if *seed == 0 {
		*seed = uint64(time.Now().Unix()) * 1000
	}
	profiles := []oracle.Profile{oracle.Mixed, oracle.Nasty}
	if *profile != "" {
		p, ok := oracle.Profiles[*profile]
		if !ok {
			t.Fatalf("there is no profile %q", *profile)
		}
		profiles = []oracle.Profile{p}
	}
	total, worlds, began := oracle.NewCounts(), 0, time.Now()
	var mu sync.Mutex
	t.Run("pairs", func(t *testing.T) {
		for i := range max(*parallel, 1) {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				testproc.Parallel(t, testproc.Light)
				real, ours := services(t)
				for k, p := range profiles {
					share := time.Duration(float64(*duration) / float64(len(profiles)))
					plan := oracle.Plan{Seed: *seed + uint64(i) + uint64(k)*500_000_000,
						Stride: uint64(max(*parallel, 1)), Profile: p, Findings: *findings,
						Requests: *steps / len(profiles) / max(*parallel, 1), ShrinkRequests: 6000, Note: t.Logf}
					if *duration > 0 {
						plan.Until = time.Now().Add(share)
					}
					result := compare(t, real, ours, plan)
					mu.Lock()
					total.Merge(result.Counts)
					worlds += result.Worlds
					mu.Unlock()
				}
			})
		}
	})
	took := time.Since(began)
	t.Logf("Seed %d: %d worlds, %d requests to each service in %v, %.0f a second.\n%s",
		*seed, worlds, total.Requests, took.Round(time.Second),
		float64(total.Requests)/took.Seconds(), total)
}
