// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/json"
	"math"

	"github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/providertree"
)

// ConsumerAllocations is what one consumer holds: the response of GET /allocations/{consumer}, the
// request of PUT from 1.12 on, and the value of each key of POST /allocations.
//
// Encoded as a request it is one of 1.28 or later: consumer_generation is always there, and null
// for a new consumer.
type ConsumerAllocations struct {
	// Allocations are amounts by provider and class. A request without any deletes all allocations
	// of the consumer; only POST, and PUT from 1.28 on, allow that.
	Allocations ProviderResources `json:"allocations"`
	// ProjectID and UserID are the consumer's owners: requests from 1.8, responses from 1.12.
	ProjectID string `json:"project_id,omitempty"`
	UserID    string `json:"user_id,omitempty"`
	// ConsumerGeneration is there from 1.28; nil for a consumer that is new.
	ConsumerGeneration *int64 `json:"consumer_generation"`
	// ConsumerType is there from 1.38.
	ConsumerType string `json:"consumer_type,omitempty"`
	// Mappings may be there in requests from 1.34: which providers serve each request group. Only
	// their form is checked.
	Mappings map[string][]string `json:"mappings,omitempty"`
}

// ProviderResources is a [providertree.ProviderResources] with the API's encoding; Go converts the
// one to the other. The generation that an answer may have beside the resources is dropped.
type ProviderResources providertree.ProviderResources

// resourcesForm is the form of what is held of one provider.
type resourcesForm struct {
	Resources providertree.Resources `json:"resources"`
}

// MarshalJSON encodes it as {"UUID": {"resources": {"CLASS": 1}}}.
func (p ProviderResources) MarshalJSON() ([]byte, error) {
	form := make(map[string]resourcesForm, len(p))
	for provider, amounts := range p {
		form[provider] = resourcesForm{amounts}
	}
	return json.Marshal(form)
}

// UnmarshalJSON is the inverse of MarshalJSON.
func (p *ProviderResources) UnmarshalJSON(b []byte) error {
	var form map[string]resourcesForm
	if err := json.Unmarshal(b, &form); err != nil || form == nil {
		return err
	}
	*p = make(ProviderResources, len(form))
	for provider, held := range form {
		(*p)[provider] = held.Resources
	}
	return nil
}

// ProviderAllocations is GET /resource_providers/{uuid}/allocations: who holds what of the
// provider, by consumer.
type ProviderAllocations struct {
	Allocations map[string]HeldAllocation `json:"allocations"`
	Generation  int64                     `json:"resource_provider_generation"`
}

// HeldAllocation is what one consumer holds of a provider.
type HeldAllocation struct {
	Resources map[string]int64 `json:"resources"`
	// ConsumerGeneration is there from 1.28.
	ConsumerGeneration *int64 `json:"consumer_generation,omitempty"`
}

// AppendResource appends one member of an object of amounts by resource class.
func AppendResource(b []byte, class string, amount int64) []byte {
	b = jsonkit.AppendString(jsonkit.AppendComma(b), class)
	b = append(b, ':')
	return jsonkit.AppendInt(b, amount)
}

// DecodeConsumerAllocations reads the body of PUT /allocations/{consumer}, in the form of the
// version. In the list form that it had before 1.12, of two entries for a provider the last one
// counts. The error is a *jsonkit.Error.
func DecodeConsumerAllocations(body []byte, v Version) (ConsumerAllocations, error) {
	r := newReader(body)
	a, err := r.consumerAllocations(v, v.Has(ConsumerGenerations))
	return a, r.finish(err)
}

// DecodeAllocations reads the body of POST /allocations: allocations by consumer. The error is a
// *jsonkit.Error.
func DecodeAllocations(body []byte, v Version) (map[string]ConsumerAllocations, error) {
	r := newReader(body)
	all, err := r.allocations(v)
	if err == nil && len(all) == 0 {
		err = r.Invalid("must name at least one consumer")
	}
	return all, r.finish(err)
}

func (r *reader) allocations(v Version) (map[string]ConsumerAllocations, error) {
	all := map[string]ConsumerAllocations{}
	err := r.Object(func(key []byte) error {
		consumer := string(key)
		if !IsUUIDKey(consumer) {
			return r.Unknown()
		}
		a, err := r.consumerAllocations(v, true)
		all[consumer] = a
		return err
	})
	return all, err
}

// consumerAllocations reads a ConsumerAllocations. emptied says that there may be no allocations in
// it.
func (r *reader) consumerAllocations(v Version, emptied bool) (a ConsumerAllocations, err error) {
	var seen struct{ allocations, project, user, generation, kind bool }
	err = r.Object(func(key []byte) (err error) {
		switch k := string(key); {
		case k == "allocations":
			seen.allocations = true
			a.Allocations = ProviderResources{}
			if v.Has(AllocationsByUUID) {
				err = r.allocationsByUUID(a.Allocations)
			} else {
				err = r.allocationList(a.Allocations)
			}
			if err == nil && len(a.Allocations) == 0 && !emptied {
				err = r.Invalid("must not be empty")
			}
		case k == "project_id" && v.Has(ProjectAndUser):
			seen.project = true
			a.ProjectID, err = r.String(1, MaxName)
		case k == "user_id" && v.Has(ProjectAndUser):
			seen.user = true
			a.UserID, err = r.String(1, MaxName)
		case k == "consumer_generation" && v.Has(ConsumerGenerations):
			seen.generation = true
			a.ConsumerGeneration = nil
			if !r.Null() {
				var generation int64
				generation, err = r.generation()
				a.ConsumerGeneration = &generation
			}
		case k == "consumer_type" && v.Has(ConsumerTypes):
			seen.kind = true
			if a.ConsumerType, err = r.String(1, MaxName); err == nil && !providertree.IsSymbol(a.ConsumerType) {
				err = r.Invalid("must be the name of a consumer type: A-Z, 0-9 and _")
			}
		case k == "mappings" && v.Has(Mappings):
			a.Mappings, err = r.mappings()
		default:
			err = r.Unknown()
		}
		return err
	})
	switch {
	case err != nil:
	case !seen.allocations:
		err = r.Missing("allocations")
	case !seen.project && v.Has(ProjectAndUser):
		err = r.Missing("project_id")
	case !seen.user && v.Has(ProjectAndUser):
		err = r.Missing("user_id")
	case !seen.generation && v.Has(ConsumerGenerations):
		err = r.Missing("consumer_generation")
	case !seen.kind && v.Has(ConsumerTypes):
		err = r.Missing("consumer_type")
	}
	return a, err
}

func (r *reader) allocationsByUUID(into ProviderResources) error {
	return r.Object(func(key []byte) error {
		provider := string(key)
		if !IsUUIDKey(provider) {
			return r.Unknown()
		}
		var resources providertree.Resources
		err := r.Object(func(key []byte) (err error) {
			switch string(key) {
			case "resources":
				resources, err = r.resources()
			case "generation":
				_, err = r.generation()
			default:
				err = r.Unknown()
			}
			return err
		})
		if err == nil && resources == nil {
			err = r.Missing("resources")
		}
		into[provider] = resources
		return err
	})
}

// allocationList reads the list form that allocations had before 1.12.
func (r *reader) allocationList(into ProviderResources) error {
	return r.Array(func(int) error {
		var provider string
		var resources providertree.Resources
		err := r.Object(func(key []byte) (err error) {
			switch string(key) {
			case "resource_provider":
				provider = ""
				err = r.Object(func(key []byte) (err error) {
					if string(key) != "uuid" {
						return r.Unknown()
					}
					provider, err = r.uuid()
					return err
				})
				if err == nil && provider == "" {
					err = r.Missing("uuid")
				}
			case "resources":
				resources, err = r.resources()
			default:
				err = r.Unknown()
			}
			return err
		})
		switch {
		case err != nil:
		case provider == "":
			err = r.Missing("resource_provider")
		case resources == nil:
			err = r.Missing("resources")
		}
		into[provider] = resources
		return err
	})
}

// resources reads amounts by resource class: at least one, each at least 1.
func (r *reader) resources() (providertree.Resources, error) {
	resources := providertree.Resources{}
	err := r.Object(func(key []byte) error {
		class := string(key)
		if !providertree.IsSymbol(class) {
			return r.Unknown()
		}
		amount, err := r.Integer(1, math.MaxInt64)
		resources[class] = amount
		return err
	})
	if err == nil && len(resources) == 0 {
		err = r.Invalid("must name at least one resource class")
	}
	return resources, err
}

// mappings reads which providers serve each request group. As in Placement, a key without any
// character that a suffix may have, such as that of the group without a suffix (""), can have any
// value.
func (r *reader) mappings() (map[string][]string, error) {
	mappings := map[string][]string{}
	err := r.Object(func(key []byte) error {
		suffix := string(key)
		var providers []string
		if !hasSuffixCharacter(suffix) {
			mappings[suffix] = nil
			return r.Skip()
		}
		err := r.Array(func(int) error {
			uuid, err := r.uuid()
			providers = append(providers, uuid)
			return err
		})
		if err == nil && len(providers) == 0 {
			err = r.Invalid("must name at least one resource provider")
		}
		mappings[suffix] = providers
		return err
	})
	if err == nil && len(mappings) == 0 {
		err = r.Invalid("must not be empty")
	}
	return mappings, err
}

func hasSuffixCharacter(s string) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' {
			return true
		}
	}
	return false
}

// Reshape is the body of POST /reshaper: what the providers must have (all of each provider's
// inventories, by provider) and what the consumers must hold of them (all of each consumer's
// allocations, by consumer).
type Reshape struct {
	Inventories map[string]Inventories         `json:"inventories"`
	Allocations map[string]ConsumerAllocations `json:"allocations"`
}

// DecodeReshape reads the body of POST /reshaper. The error is a *jsonkit.Error.
func DecodeReshape(body []byte, v Version) (Reshape, error) {
	r := newReader(body)
	var reshape Reshape
	err := r.Object(func(key []byte) (err error) {
		switch string(key) {
		case "inventories":
			reshape.Inventories = map[string]Inventories{}
			err = r.Object(func(key []byte) error {
				provider := string(key)
				if !IsUUIDKey(provider) {
					return r.Unknown()
				}
				inv, err := r.inventories()
				reshape.Inventories[provider] = inv
				return err
			})
			if err == nil && len(reshape.Inventories) == 0 {
				err = r.Invalid("must name at least one resource provider")
			}
		case "allocations":
			reshape.Allocations, err = r.allocations(v)
		default:
			err = r.Unknown()
		}
		return err
	})
	switch {
	case err != nil:
	case reshape.Inventories == nil:
		err = r.Missing("inventories")
	case reshape.Allocations == nil:
		err = r.Missing("allocations")
	default:
		err = r.End()
	}
	return reshape, err
}
