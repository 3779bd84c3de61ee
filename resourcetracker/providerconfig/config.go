// SPDX-License-Identifier: Apache-2.0

package providerconfig

import (
	"crypto/sha256"
	"slices"

	"github.com/compute-agent/compute-agent/providertree"
)

// ComputeNode is the placeholder for the uuid of the root provider of every compute node of the
// host.
const ComputeNode = "$COMPUTE_NODE"

// Config is what the files of a directory say. It is not changed after [Load]. A nil Config is an
// empty one.
type Config struct {
	entries []Entry // in the order of the files
	byID    map[identity]int
	files   []string
	digest  [sha256.Size]byte // of the names and contents of the files
}

// Entry is what one entry adds to a provider.
type Entry struct {
	// UUID is canonical, or [ComputeNode]; Name is a provider's name. Exactly one of them is set.
	UUID string `json:"uuid,omitempty"`
	Name string `json:"name,omitempty"`
	// Place is where the entry's identification is.
	Place Place `json:"place"`
	// Inventories are normalised, see [providertree.Inventory.Normalize]; classes and traits are
	// custom ones.
	Inventories providertree.Inventories `json:"inventories"`
	Traits      []string                 `json:"traits"` // sorted

	classAt map[string]Place
	traitAt map[string]Place
}

// ID is the uuid or the name.
func (e Entry) ID() string { return e.UUID + e.Name }

// Key identifies an entry and stays the same when files are rearranged: "uuid UUID" or "name NAME".
func (e Entry) Key() string {
	if e.UUID != "" {
		return "uuid " + e.UUID
	}
	return "name " + e.Name
}

// identity is how an entry names its provider.
type identity struct{ uuid, name string }

func (e Entry) identity() identity { return identity{e.UUID, e.Name} }

func (e Entry) clone() Entry {
	inventories := make(providertree.Inventories, len(e.Inventories))
	for class, inv := range e.Inventories {
		inventories[class] = inv
	}
	e.Inventories, e.Traits = inventories, slices.Clone(e.Traits)
	return e
}

// Entries are copies of the entries, in the order of the files.
func (c *Config) Entries() []Entry {
	if c == nil {
		return nil
	}
	out := make([]Entry, len(c.entries))
	for i, e := range c.entries {
		out[i] = e.clone()
	}
	return out
}

// Files are the files that were read, sorted.
func (c *Config) Files() []string {
	if c == nil {
		return nil
	}
	return slices.Clone(c.files)
}

// Len is the number of entries.
func (c *Config) Len() int {
	if c == nil {
		return 0
	}
	return len(c.entries)
}

// Same reports whether both were read from the same files with the same content.
func (c *Config) Same(other *Config) bool {
	if c == nil || other == nil {
		return c.Len() == 0 && other.Len() == 0
	}
	return c.digest == other.digest
}

// Location returns FILE:LINE of an item (a resource class or a trait) that the configuration adds
// to the provider with a uuid and name, also by way of $COMPUTE_NODE; "" if it adds no such item.
// For the item "" it returns that of the entry.
func (c *Config) Location(uuid, name, item string) string {
	if c == nil {
		return ""
	}
	for _, id := range []identity{{uuid: uuid}, {name: name}, {uuid: ComputeNode}} {
		i, ok := c.byID[id]
		if !ok {
			continue
		}
		e := c.entries[i]
		if item == "" {
			return e.Place.line()
		}
		if at, ok := e.classAt[item]; ok {
			return at.line()
		}
		if at, ok := e.traitAt[item]; ok {
			return at.line()
		}
	}
	return ""
}
