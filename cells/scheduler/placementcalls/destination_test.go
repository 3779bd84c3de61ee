// SPDX-License-Identifier: Apache-2.0

package placementcalls_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/cells/apidb"
	"github.com/compute-agent/compute-agent/cells/scheduler/placementcalls"
	"github.com/compute-agent/compute-agent/test/testproc"
)

// TestDestinationOf: which aggregates each option asks for, and which it forbids.
func TestDestinationOf(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	all := []apidb.Aggregate{
		{UUID: "east", Metadata: map[string]string{apidb.ZoneKey: "east"}},
		{UUID: "west", Metadata: map[string]string{apidb.ZoneKey: "west"}},
		{UUID: "tenant", Metadata: map[string]string{"filter_tenant_id1": "p"}},
		{UUID: "fast", Metadata: map[string]string{"trait:CUSTOM_FAST": "required"}},
		{UUID: "reserved", Metadata: map[string]string{"reservation:r1": "1"}},
	}
	type options = placementcalls.AggregateOptions
	type destination = placementcalls.Destination
	for name, c := range map[string]struct {
		o             options
		zone, project string
		specs         map[string]string
		traits        map[string]bool
		want          destination
		missing       bool
	}{
		"nothing":                        {},
		"a zone":                         {zone: "east", want: destination{OneOf: [][]string{{"east"}}}},
		"the zone of hosts without one":  {zone: "nova", want: destination{NoneOf: []string{"east", "west"}}},
		"a zone, not asked of Placement": {o: options{LocalZones: true}, zone: "east"},
		"a zone that no aggregate has":   {zone: "north"},
		"a project with an aggregate": {o: options{LimitTenants: true}, project: "p",
			want: destination{OneOf: [][]string{{"tenant"}}}},
		"a project without one": {o: options{LimitTenants: true}, project: "q"},
		"a project that needs one": {o: options{LimitTenants: true, RequireTenants: true}, project: "q",
			missing: true},
		"a trait that is not required": {o: options{Isolate: true}, want: destination{NoneOf: []string{"fast"}}},
		"a trait that is":              {o: options{Isolate: true}, traits: map[string]bool{"CUSTOM_FAST": true}},
		"a member that the flavor requires": {o: options{RequiredMembers: []string{"reservation:"}},
			specs: map[string]string{"reservation:r1": ""}, want: destination{OneOf: [][]string{{"reserved"}}}},
		"a member that there is not": {o: options{RequiredMembers: []string{"reservation:"}},
			specs: map[string]string{"reservation:r2": ""}, missing: true},
		"a member that is not required": {o: options{ForbiddenMembers: []string{"reservation:"}},
			want: destination{NoneOf: []string{"reserved"}}},
		"any member of the prefix": {o: options{ForbiddenMembers: []string{"reservation:"}},
			specs: map[string]string{"reservation:r2": ""}},
	} {
		var spec apidb.RequestSpec
		spec.Zone, spec.ProjectID, spec.Flavor.ExtraSpecs = c.zone, c.project, c.specs
		got, err := placementcalls.DestinationOf(all, "nova", c.o, &spec, c.traits)
		var missing *placementcalls.MissingError
		if errors.As(err, &missing) != c.missing || !c.missing && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !c.missing {
			testproc.Samef(t, cmp.Diff(c.want, got), "%s", name)
		}
	}
}

// TestDestinationHasHost: a host has to be in an aggregate of each list, and in none of those that
// are forbidden.
func TestDestinationHasHost(t *testing.T) {
	testproc.Parallel(t, testproc.Light)
	d := placementcalls.Destination{OneOf: [][]string{{"a", "b"}, {"c"}}, NoneOf: []string{"d"}}
	for _, c := range []struct {
		in   []string
		want bool
	}{
		{nil, false}, {[]string{"a"}, false}, {[]string{"a", "c"}, true}, {[]string{"b", "c", "e"}, true},
		{[]string{"a", "c", "d"}, false},
	} {
		if got := d.Has(c.in); got != c.want {
			t.Errorf("a host in %v is a place for it: %t", c.in, got)
		}
	}
}
