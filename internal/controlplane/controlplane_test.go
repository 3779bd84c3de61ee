// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/cells/scheduler/placementcalls"
	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestSchedulerOptions: each key about where servers go reaches the compute API.
func TestSchedulerOptions(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	type options struct {
		Aggregates             placementcalls.AggregateOptions
		Default, Internal, For string // zones
		Candidates             int    // 0: the default, 1000
	}
	for text, want := range map[string]options{
		"": {Default: "nova", Internal: "internal"},
		"[scheduler]\nlimit_tenants_to_placement_aggregate = true": {
			placementcalls.AggregateOptions{LimitTenants: true}, "nova", "internal", "", 0,
		},
		"[scheduler]\nplacement_aggregate_required_for_tenants = true": {
			placementcalls.AggregateOptions{RequireTenants: true}, "nova", "internal", "", 0,
		},
		"[scheduler]\nquery_placement_for_availability_zone = false": {
			placementcalls.AggregateOptions{LocalZones: true}, "nova", "internal", "", 0,
		},
		"[scheduler]\nenable_isolated_aggregate_filtering = true": {
			placementcalls.AggregateOptions{Isolate: true}, "nova", "internal", "", 0,
		},
		"[scheduler]\nrequired_member_prefix = [\"r:\"]": {
			placementcalls.AggregateOptions{RequiredMembers: []string{"r:"}}, "nova", "internal", "", 0,
		},
		"[scheduler]\ndefault_forbidden_member_prefix = [\"r:\"]": {
			placementcalls.AggregateOptions{ForbiddenMembers: []string{"r:"}}, "nova", "internal", "", 0,
		},
		"[scheduler]\nmax_placement_results = 50": {Default: "nova",
			Internal: "internal", Candidates: 50},
		"[compute_api]\ndefault_availability_zone = \"here\"":            {Default: "here", Internal: "internal"},
		"[compute_api]\ninternal_service_availability_zone = \"secret\"": {Default: "nova", Internal: "secret"},
		"[compute_api]\ndefault_schedule_zone = \"east\"": {Default: "nova",
			Internal: "internal", For: "east"},
	} {
		file := filepath.Join(t.TempDir(), "config.toml")
		testproc.Check(t, os.WriteFile(file, []byte(text), 0o600))
		cfg := testproc.Try(config.Load(config.Options{File: file, Environ: []string{"HOME=/nonexistent"}})).Or(t)
		made, err := computeAPI(t.Context(), cfg, Process{}, zerolog.Nop())
		testproc.Checkf(t, err, "%s", text)
		zones := made.Options
		if diff := cmp.Diff(want, options{made.Aggregates, zones.DefaultZone, zones.InternalZone, zones.ScheduleZone,
			made.MaxPlacementResults % 1000}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
}
