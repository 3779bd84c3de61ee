// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/providertree"
)

// ProviderQuery is the query of GET /resource_providers.
type ProviderQuery struct {
	Conditions
	UUID, Name, InTree string // "" for any
}

// providerParameters are the parameters of GET /resource_providers, in the order in which Placement
// reads them, with their origin and the function that adds their values to the query.
//
// A new one comes last. It needs a field of ProviderQuery; its condition in findProviders of
// placement/api, with a case of TestListingProviders (resources_test.go there), without which no
// test fails when it has no effect; its schema, if it is not any text, in schemasOf
// (schemas_test.go there); a seed of FuzzProviderQuery (query_internal_test.go); and the reference:
// go test ./placement/api -run '^TestReferenceIsCurrent$' -update. A list with no other condition
// is refused to a host (mayList of placement/api/hostpolicy). A parameter that OpenStack's
// Placement does not have is an extension: its test is one of its own, since the calls of
// TestListingProviders send no headers; extensions.go says what else it needs.
var providerParameters = [...]struct {
	Parameter
	read func(pq *ProviderQuery, values []string, v Version) error
}{
	{Parameter{Name: "name", Text: "Those of this name."},
		func(pq *ProviderQuery, values []string, _ Version) error {
			pq.Name = values[len(values)-1]
			return nil
		}},
	{Parameter{Name: "uuid", Text: "Those with this UUID."},
		func(pq *ProviderQuery, values []string, _ Version) (err error) {
			pq.UUID, err = readUUID("uuid", values)
			return err
		}},
	{
		Parameter{Name: "in_tree", Origin: Origin{Since: NestedProviders},
			Text: "Those in the tree that has this resource provider."},
		func(pq *ProviderQuery, values []string, _ Version) (err error) {
			pq.InTree, err = readUUID("in_tree", values)
			return err
		},
	},
	{
		Parameter{Name: "member_of", Origin: Origin{Since: MemberOfFilter},
			Repeated: RepeatedMemberOf, Text: TextMemberOf},
		func(pq *ProviderQuery, values []string, v Version) (err error) {
			pq.MemberOf, pq.NotMemberOf, err = ReadMemberOf(values, "member_of", v)
			pq.MemberOf, pq.NotMemberOf = UniqueSets(pq.MemberOf), Unique(pq.NotMemberOf)
			return err
		},
	},
	{
		Parameter{Name: "required", Origin: Origin{Since: RequiredFilter},
			Repeated: AnyTraits, Text: TextRequired},
		func(pq *ProviderQuery, values []string, v Version) (err error) {
			if !v.Has(AnyTraits) {
				values = values[len(values)-1:]
			}
			pq.Required, pq.Forbidden, err = ReadRequired(values, v)
			pq.Required, pq.Forbidden = UniqueSets(pq.Required), Unique(pq.Forbidden)
			return err
		},
	},
	{Parameter{Name: "resources", Origin: Origin{Since: ResourcesFilter}, Text: TextResources},
		func(pq *ProviderQuery, values []string, _ Version) (err error) {
			pq.Resources, err = ReadResources(values[len(values)-1])
			return err
		}},
}

// readUUID reads the last value of a parameter that is a UUID.
func readUUID(key string, values []string) (string, error) {
	value := values[len(values)-1]
	if !providertree.IsUUID(value) {
		return "", BadQuery("Invalid query string parameters: %s must be a UUID. Got: %s.", key,
			jsonkit.Shortened(value))
	}
	return value, nil
}

// ReadProviderQuery reads the query of GET /resource_providers at a microversion. ext is asked for
// the extensions of the client only if a parameter depends on them. The error is a *QueryError.
func ReadProviderQuery(raw string, v Version, ext func() ExtensionSet) (pq ProviderQuery, err error) {
	q, err := ReadQuery(raw)
	if err != nil || len(q) == 0 {
		return pq, err
	}
	for _, p := range q {
		var known Origin
		found := false
		for i := range providerParameters {
			if parameter := &providerParameters[i]; parameter.Name == p.Key {
				known, found = parameter.Origin, parameter.ExistsAt(v, ext)
			}
		}
		if !found {
			return pq, UnknownParameter(p.Key, known, v)
		}
	}
	for i := range providerParameters {
		parameter := &providerParameters[i]
		if values := q.All(parameter.Name); len(values) > 0 {
			if err := parameter.read(&pq, values, v); err != nil {
				return pq, err
			}
		}
	}
	return pq, nil
}

// ProviderParameters are the parameters of GET /resource_providers.
func ProviderParameters() (all []Parameter) {
	for i := range providerParameters {
		all = append(all, providerParameters[i].Parameter)
	}
	return all
}
