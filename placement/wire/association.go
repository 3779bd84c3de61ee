// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/providertree"
)

// TraitList is GET /traits.
type TraitList struct {
	Traits []string `json:"traits"`
}

// ProviderTraits is GET and PUT /resource_providers/{uuid}/traits, response and request.
type ProviderTraits struct {
	Traits     []string `json:"traits"`
	Generation int64    `json:"resource_provider_generation"`
}

// AggregateList is GET and PUT /resource_providers/{uuid}/aggregates, response and request. The
// generation is there from 1.19; before, the request is the bare list.
type AggregateList struct {
	Aggregates []string `json:"aggregates"`
	Generation *int64   `json:"resource_provider_generation,omitempty"`
}

// ResourceClass is GET /resource_classes/{name}, and the request of POST /resource_classes without
// the links.
type ResourceClass struct {
	Name  string `json:"name"`
	Links []Link `json:"links,omitempty"`
}

// ProviderUsages is GET /resource_providers/{uuid}/usages: what is allocated of the provider, by
// resource class.
type ProviderUsages struct {
	Generation int64            `json:"resource_provider_generation"`
	Usages     map[string]int64 `json:"usages"`
}

// TypedUsagesReply is GET /usages from 1.38: amounts by consumer type and resource class. Among the
// classes of each type stands ConsumerCount, the number of its consumers.
type TypedUsagesReply struct {
	Usages map[string]map[string]int64 `json:"usages"`
}

// AppendResourceClass appends a ResourceClass.
func AppendResourceClass(b []byte, name string) []byte {
	b = append(b, `{"name":`...)
	b = jsonkit.AppendString(b, name)
	b = append(b, `,"links":[{"rel":"self","href":"/resource_classes/`...)
	b = append(b, name...)
	return append(b, `"}]}`...)
}

// AppendProviderTraits appends a ProviderTraits.
func AppendProviderTraits(b []byte, traits []string, generation int64) []byte {
	b = append(b, `{"traits":`...)
	b = jsonkit.AppendStrings(b, traits)
	b = append(b, `,"resource_provider_generation":`...)
	b = jsonkit.AppendInt(b, generation)
	return append(b, '}')
}

// AppendAggregates appends an AggregateList.
func AppendAggregates(b []byte, aggregates []string, generation int64, v Version) []byte {
	b = append(b, `{"aggregates":`...)
	b = jsonkit.AppendStrings(b, aggregates)
	if v.Has(AggregateGenerations) {
		b = append(b, `,"resource_provider_generation":`...)
		b = jsonkit.AppendInt(b, generation)
	}
	return append(b, '}')
}

// AppendGeneration appends the member resource_provider_generation, and a comma.
func AppendGeneration(b []byte, generation int64) []byte {
	b = append(b, `"resource_provider_generation":`...)
	b = jsonkit.AppendInt(b, generation)
	return append(b, ',')
}

// DecodeResourceClass reads the body of POST /resource_classes, and of PUT /resource_classes/{name}
// before 1.7. The error is a *jsonkit.Error.
func DecodeResourceClass(body []byte) (name string, err error) {
	r := newReader(body)
	named := false
	err = r.Object(func(key []byte) (err error) {
		if string(key) != "name" {
			return r.Unknown()
		}
		named = true
		if name, err = r.String(0, MaxName); err == nil && !providertree.IsCustomName(name) {
			err = r.Invalid("must begin with %s and go on with A-Z, 0-9 and _", providertree.CustomPrefix)
		}
		return err
	})
	if err == nil && !named {
		err = r.Missing("name")
	}
	return name, r.finish(err)
}

// DecodeProviderTraits reads the body of PUT /resource_providers/{uuid}/traits. The error is a
// *jsonkit.Error.
func DecodeProviderTraits(body []byte) (t ProviderTraits, err error) {
	r := newReader(body)
	generation := false
	err = r.Object(func(key []byte) (err error) {
		switch string(key) {
		case "traits":
			t.Traits = []string{}
			err = r.Array(func(int) error {
				name, err := r.String(1, MaxName)
				t.Traits = append(t.Traits, name)
				return err
			})
		case "resource_provider_generation":
			generation = true
			t.Generation, err = r.generation()
		default:
			err = r.Unknown()
		}
		return err
	})
	switch {
	case err != nil:
	case t.Traits == nil:
		err = r.Missing("traits")
	case !generation:
		err = r.Missing("resource_provider_generation")
	default:
		err = r.End()
	}
	return t, err
}

// DecodeAggregates reads the body of PUT /resource_providers/{uuid}/aggregates. UUIDs stay as they
// are spelled, except that a spelling of more than 36 characters becomes the canonical one. The
// error is a *jsonkit.Error.
func DecodeAggregates(body []byte, v Version) (a AggregateList, err error) {
	r := newReader(body)
	if !v.Has(AggregateGenerations) {
		if a.Aggregates, err = r.uuidSet(); err == nil {
			err = r.End()
		}
		return a, err
	}
	err = r.Object(func(key []byte) (err error) {
		switch string(key) {
		case "aggregates":
			a.Aggregates, err = r.uuidSet()
		case "resource_provider_generation":
			var generation int64
			generation, err = r.generation()
			a.Generation = &generation
		default:
			err = r.Unknown()
		}
		return err
	})
	switch {
	case err != nil:
	case a.Aggregates == nil:
		err = r.Missing("aggregates")
	case a.Generation == nil:
		err = r.Missing("resource_provider_generation")
	default:
		err = r.End()
	}
	return a, err
}

// uuidSet reads an array of UUIDs of which no two are equal.
func (r *reader) uuidSet() ([]string, error) {
	list := []string{}
	seen := map[string]struct{}{}
	err := r.Array(func(int) error {
		uuid, err := r.uuid()
		if err != nil {
			return err
		}
		if _, twice := seen[uuid]; twice {
			return r.Invalid("stands in the list twice")
		}
		seen[uuid] = struct{}{}
		if len(uuid) > 36 {
			uuid, _ = providertree.CanonicalUUID(uuid)
		}
		list = append(list, uuid)
		return nil
	})
	return list, err
}
