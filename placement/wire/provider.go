// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/json"

	"github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/providertree"
)

// ResourceProvider is a provider as the API shows it: GET /resource_providers[/{uuid}], PUT, and
// POST from 1.20.
type ResourceProvider struct {
	UUID       string `json:"uuid"`
	Name       string `json:"name"`
	Generation int64  `json:"generation"`
	Links      []Link `json:"links"`
	// Parent and Root are there from 1.14; Parent is null on a root.
	Parent *string `json:"parent_provider_uuid"`
	Root   string  `json:"root_provider_uuid,omitempty"`
}

// ResourceProviders is GET /resource_providers.
type ResourceProviders struct {
	ResourceProviders []ResourceProvider `json:"resource_providers"`
}

// ProviderRow is what AppendProvider writes of a provider. Parent is "" on a root.
type ProviderRow struct {
	UUID, Name   string
	Generation   int64
	Parent, Root string
}

// providerLinks are the links of a provider besides itself, and what brought them.
var providerLinks = [...]struct {
	rel   string
	since Feature
}{
	{"inventories", Always},
	{"usages", Always},
	{"aggregates", ProviderAggregates},
	{"traits", Traits},
	{"allocations", AllocationsLink},
}

// AppendProvider appends a ResourceProvider.
// Cost: about 0.7 KB and no allocation.
func AppendProvider(b []byte, p ProviderRow, v Version) []byte {
	b = append(b, `{"uuid":`...)
	b = jsonkit.AppendString(b, p.UUID)
	b = append(b, `,"name":`...)
	b = jsonkit.AppendString(b, p.Name)
	b = append(b, `,"generation":`...)
	b = jsonkit.AppendInt(b, p.Generation)
	b = append(b, `,"links":[{"rel":"self","href":"/resource_providers/`...)
	b = append(b, p.UUID...)
	b = append(b, `"}`...)
	for _, l := range providerLinks {
		if !v.Has(l.since) {
			break
		}
		b = append(b, `,{"rel":"`...)
		b = append(b, l.rel...)
		b = append(b, `","href":"`...)
		b = append(b, "/resource_providers/"...)
		b = append(b, p.UUID...)
		b = append(b, '/')
		b = append(b, l.rel...)
		b = append(b, `"}`...)
	}
	b = append(b, ']')
	if v.Has(NestedProviders) {
		b = append(b, `,"parent_provider_uuid":`...)
		if p.Parent == "" {
			b = append(b, "null"...)
		} else {
			b = jsonkit.AppendString(b, p.Parent)
		}
		b = append(b, `,"root_provider_uuid":`...)
		b = jsonkit.AppendString(b, p.Root)
	}
	return append(b, '}')
}

// ProviderCreate is the body of POST /resource_providers. Without a UUID the server makes one;
// without a Parent (1.14) the provider is a root.
type ProviderCreate struct {
	Name   string `json:"name"`
	UUID   string `json:"uuid,omitempty"`
	Parent string `json:"parent_provider_uuid,omitempty"`
}

// ProviderUpdate is the body of PUT /resource_providers/{uuid}.
type ProviderUpdate struct {
	Name string `json:"name"`
	// Parent (1.14) is encoded only if it is Set. Without it the parent stays.
	Parent ParentChange `json:"parent_provider_uuid,omitzero"`
}

// ParentChange is a new parent: UUID, or none when UUID is "" (null in JSON).
type ParentChange struct {
	Set  bool
	UUID string
}

// IsZero reports whether it is left out.
func (c ParentChange) IsZero() bool { return !c.Set }

// MarshalJSON writes the UUID, or null.
func (c ParentChange) MarshalJSON() ([]byte, error) {
	if c.UUID == "" {
		return []byte("null"), nil
	}
	return json.Marshal(c.UUID)
}

// DecodeProviderCreate reads the body of POST /resource_providers. It returns the UUID in its
// canonical spelling, and the parent's as it was written. The error is a *jsonkit.Error.
func DecodeProviderCreate(body []byte, v Version) (ProviderCreate, error) {
	var p ProviderCreate
	name, change, err := decodeProvider(body, v, &p.UUID)
	p.Name, p.Parent = name, change.UUID
	return p, err
}

// DecodeProviderUpdate reads the body of PUT /resource_providers/{uuid}. The error is a
// *jsonkit.Error.
func DecodeProviderUpdate(body []byte, v Version) (ProviderUpdate, error) {
	name, change, err := decodeProvider(body, v, nil)
	return ProviderUpdate{Name: name, Parent: change}, err
}

func decodeProvider(body []byte, v Version, uuid *string) (name string, parent ParentChange, err error) {
	r := newReader(body)
	named := false
	err = r.Object(func(key []byte) (err error) {
		switch {
		case string(key) == "name":
			name, err = r.String(1, MaxProviderName)
			named = true
		case string(key) == "uuid" && uuid != nil:
			text, err := r.uuid()
			if err != nil {
				return err
			}
			*uuid, _ = providertree.CanonicalUUID(text)
		case string(key) == "parent_provider_uuid" && v.Has(NestedProviders):
			parent = ParentChange{Set: true}
			if !r.Null() {
				parent.UUID, err = r.uuid()
			}
		default:
			return r.Unknown()
		}
		return err
	})
	if err == nil && !named {
		err = r.Missing("name")
	}
	return name, parent, r.finish(err)
}

// uuid reads a string that is a UUID and gives it as it is spelled.
func (r *reader) uuid() (string, error) {
	s, err := r.String(0, 0)
	if err == nil && !providertree.IsUUID(s) {
		err = r.Invalid("must be a UUID")
	}
	return s, err
}
