// SPDX-License-Identifier: Apache-2.0

package placementcalls

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/cells/apidb"
)

// AggregateOptions are Nova's [scheduler] options about host aggregates.
type AggregateOptions struct {
	// LimitTenants restricts projects to the aggregates that name them in metadata that begins with
	// filter_tenant_id (limit_tenants_to_placement_aggregate); with RequireTenants projects that
	// none names get no host (placement_aggregate_required_for_tenants).
	LimitTenants, RequireTenants bool
	// LocalZones does not ask Placement for hosts of a zone, but all that it has: the opposite of
	// query_placement_for_availability_zone. Servers get the zone that was asked for in any case.
	LocalZones bool
	// Isolate keeps servers that do not require a trait out of aggregates with the metadata
	// trait:TRAIT=required (enable_isolated_aggregate_filtering).
	Isolate bool
	// RequiredMembers are prefixes of extra specs that name aggregates: a server goes only to hosts
	// of an aggregate that has the name of the extra spec in its metadata, for each of them
	// (required_member_prefix).
	RequiredMembers []string
	// ForbiddenMembers are prefixes of the metadata of aggregates that take only servers with an
	// extra spec of the prefix (default_forbidden_member_prefix).
	ForbiddenMembers []string
}

// MemberPrefixes returns the prefixes of extra specs that the scheduler compares with the metadata
// of aggregates.
func (o AggregateOptions) MemberPrefixes() []string {
	return slices.Concat(o.RequiredMembers, o.ForbiddenMembers)
}

// What Nova's metadata of aggregates begins with.
const (
	tenantKey = "filter_tenant_id"
	traitKey  = "trait:"
)

// MissingError says that a server needs an aggregate, and why there is none.
type MissingError struct{ why string }

func (e *MissingError) Error() string { return e.why }

// errNoTenantAggregate says that projects need an aggregate, and this one has none.
var errNoTenantAggregate = &MissingError{
	"scheduling failed: no hosts available for tenant: no host aggregate has it as filter_tenant_id, and the " +
		"configuration requires one",
}

// Destination is where a server may be, by the uuids of aggregates of its host: in one of each list
// of OneOf, and in none of NoneOf.
type Destination struct {
	OneOf  [][]string
	NoneOf []string
}

// DestinationOf returns the destination of a server of a project, in a zone if one was asked for,
// that requires some traits: Nova's map_az_to_placement_aggregate, require_tenant_aggregate and
// isolate_aggregates; and by its extra specs, see addMembers. aggregates are all host aggregates,
// zone is the availability zone of the hosts that get none from an aggregate.
//
// Errors: *[MissingError].
func DestinationOf(
	aggregates []apidb.Aggregate, zone string, o AggregateOptions, spec *apidb.RequestSpec, traits map[string]bool,
) (d Destination, err error) {
	var ofZone, otherZones, ofTenant []string
	for i := range aggregates {
		a := &aggregates[i]
		switch a.Zone() {
		case "":
		case spec.Zone:
			ofZone = append(ofZone, a.UUID)
		default:
			otherZones = append(otherZones, a.UUID)
		}
		names, isolated := false, false
		for key, value := range a.Metadata {
			names = names || strings.HasPrefix(key, tenantKey) && value == spec.ProjectID
			trait, about := strings.CutPrefix(key, traitKey)
			isolated = isolated || about && value == "required" && !traits[trait]
		}
		if names {
			ofTenant = append(ofTenant, a.UUID)
		}
		if isolated && o.Isolate {
			d.NoneOf = append(d.NoneOf, a.UUID)
		}
	}
	switch {
	case o.LocalZones || spec.Zone == "":
	case spec.Zone == zone: // hosts in no aggregate are in it, too
		d.NoneOf = append(d.NoneOf, otherZones...)
	case len(ofZone) > 0:
		d.OneOf = append(d.OneOf, ofZone)
	}
	switch {
	case !o.LimitTenants:
	case len(ofTenant) > 0:
		d.OneOf = append(d.OneOf, ofTenant)
	case o.RequireTenants:
		return d, errNoTenantAggregate
	}
	if err := d.addMembers(aggregates, o, spec.Flavor.ExtraSpecs); err != nil {
		return d, err
	}
	slices.Sort(d.NoneOf)
	d.NoneOf = slices.Compact(d.NoneOf)
	return d, nil
}

// addMembers adds the aggregates that extra specs name, and those that only such extra specs open.
// As in the specification of forbidden aggregates, any extra spec of a prefix opens all aggregates
// of that prefix, and the names alone are compared: their values say nothing.
func (d *Destination) addMembers(aggregates []apidb.Aggregate, o AggregateOptions, specs map[string]string) error {
	with := func(has func(metadata map[string]string) bool) (uuids []string) {
		for i := range aggregates {
			if has(aggregates[i].Metadata) {
				uuids = append(uuids, aggregates[i].UUID)
			}
		}
		return uuids
	}
	for _, name := range slices.Sorted(maps.Keys(specs)) {
		if !slices.ContainsFunc(o.RequiredMembers,
			func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
			continue
		}
		members := with(func(metadata map[string]string) bool {
			_, has := metadata[name]
			return has
		})
		if len(members) == 0 {
			return &MissingError{fmt.Sprintf(
				"The extra spec %.255s of the flavor requires a host aggregate with metadata of that name, and "+
					"there is none.", name)}
		}
		d.OneOf = append(d.OneOf, members)
	}
	for _, prefix := range o.ForbiddenMembers {
		begins := func(all map[string]string) bool {
			for name := range all {
				if strings.HasPrefix(name, prefix) {
					return true
				}
			}
			return false
		}
		if !begins(specs) {
			d.NoneOf = append(d.NoneOf, with(begins)...)
		}
	}
	return nil
}

// Has reports whether a host that is in some aggregates is a place for the server.
func (d *Destination) Has(in []string) bool {
	is := func(uuid string) bool { return slices.Contains(in, uuid) }
	return !slices.ContainsFunc(d.OneOf, func(list []string) bool { return !slices.ContainsFunc(list, is) }) &&
		!slices.ContainsFunc(d.NoneOf, is)
}
