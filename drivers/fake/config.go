// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/compute-agent/compute-agent/drivers/fake/internal/faults"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

//go:embed schema.json
var schema []byte

// config is the table [drivers.fake.config].
type config struct {
	// Nodes are the compute nodes; without any there is one with the host's name and basic
	// inventory.
	Nodes []provider `json:"nodes" toml:"nodes"`
	// Layout is the layout of a node's inventory, see layouts; "" is flat.
	Layout string `json:"layout" toml:"layout"`
	// LayoutVersion is the layout version that the driver makes, instead of Layout; 0: layouts have
	// no versions.
	LayoutVersion int `json:"layout_version" toml:"layout_version"`
	// FormerLayout and FormerVersion are Layout and LayoutVersion under their names up to release
	// 0.2.0, see takeFormer.
	FormerLayout  string `json:"shape" toml:"shape"`
	FormerVersion int    `json:"shape_version" toml:"shape_version"`
	// GPUs and NUMACells are how many children of a kind the layouts have; 0 is 2.
	GPUs      int `json:"gpus" toml:"gpus"`
	NUMACells int `json:"numa_cells" toml:"numa_cells"`
	// ClassRenames maps former names of configured resource classes to current ones.
	ClassRenames plugins.ClassRenames `json:"class_renames" toml:"class_renames"`
	// Guests are consumers whose share is on the child of that name.
	Guests map[string]string `json:"guests" toml:"guests"`
	// GuestList are all guests; nil: listing guests is not supported.
	GuestList []guest `json:"guest_list" toml:"guest_list"`
	// GuestsError is why guests cannot be listed now.
	GuestsError string `json:"guests_error" toml:"guests_error"`
	// Capabilities are traits of every node, and whether it has them.
	Capabilities map[string]bool `json:"capabilities" toml:"capabilities"`
	// ProductNames are what the hardware is called, by the name of the child ("" is the node
	// itself), in every node.
	ProductNames map[string]string `json:"product_names" toml:"product_names"`
	// DeletedNodes are names of nodes that were removed for good.
	DeletedNodes []string `json:"deleted_nodes" toml:"deleted_nodes"`
	// Instances lets the driver manage instances; nil: it does not.
	Instances *management `json:"instances" toml:"instances"`
	// Faults are what the driver does wrong on purpose.
	Faults faults.Config `json:"faults" toml:"faults"`
	// NotReady makes calls fail with NotReady and this reason.
	NotReady string `json:"not_ready" toml:"not_ready"`
	// Health is a problem to report; the driver works all the same.
	Health string `json:"health" toml:"health"`
	// Warnings are the driver's warnings by name.
	Warnings map[string]string `json:"warnings" toml:"warnings"`
	// Scenario is the path of a file with all of this instead, see scenario.
	Scenario string `json:"scenario" toml:"scenario"`

	former   map[string]string  // the former names of keys under which they are set
	layouts  [][]provider       // the nodes in each layout up to LayoutVersion, by its number
	machines map[string]machine // by uuid, for a reshape
}

// formerKeys are the names of keys up to release 0.2.0, with the current ones.
var formerKeys = map[string]string{"shape": "layout", "shape_version": "layout_version"}

// takeFormer sets the keys that are given under their former names.
func (c *config) takeFormer() error {
	for _, key := range []struct {
		former string
		both   bool
	}{{"shape", c.FormerLayout != "" && c.Layout != ""},
		{"shape_version", c.FormerVersion != 0 && c.LayoutVersion != 0}} {
		if key.both {
			return &plugins.ConfigError{Key: key.former,
				Problem: "is the former name of " + formerKeys[key.former] + "; one of the two only"}
		}
	}
	c.former = map[string]string{}
	if c.FormerLayout != "" {
		c.Layout, c.former["layout"] = c.FormerLayout, "shape"
	}
	if c.FormerVersion != 0 {
		c.LayoutVersion, c.former["layout_version"] = c.FormerVersion, "shape_version"
	}
	c.FormerLayout, c.FormerVersion = "", 0
	return nil
}

// given returns the name under which a key is set.
func (c *config) given(key string) string { return cmp.Or(c.former[key], key) }

// provider is a node, or a provider below one.
type provider struct {
	Name string `json:"name" toml:"name"`
	// UUID is for nodes only; "" leaves it to the agent. Those of children follow from their names.
	UUID        string               `json:"uuid" toml:"uuid"`
	Inventories map[string]inventory `json:"inventories" toml:"inventories"`
	Traits      []string             `json:"traits" toml:"traits"`
	Aggregates  []string             `json:"aggregates" toml:"aggregates"`
	Children    []provider           `json:"children" toml:"children"`

	of   string // the prefix of the kind of children that a layout made it one of
	full string // the name in the tree, if that does not follow from the parent's
}

// nameBelow is the name of the provider in the tree, as a child of another.
func (p provider) nameBelow(parent string) string {
	if p.full != "" {
		return p.full
	}
	return childName(parent, p.Name)
}

type inventory struct {
	Total           int64   `json:"total" toml:"total"`
	Reserved        int64   `json:"reserved" toml:"reserved"`
	MinUnit         int64   `json:"min_unit" toml:"min_unit"`
	MaxUnit         int64   `json:"max_unit" toml:"max_unit"`
	StepSize        int64   `json:"step_size" toml:"step_size"`
	AllocationRatio float64 `json:"allocation_ratio" toml:"allocation_ratio"`
}

// parse reads a configuration and checks all that can be checked without a tree, so that a mistake
// is reported at the start, with its key.
func parse(raw json.RawMessage, host plugins.HostInfo) (config, error) {
	var cfg config
	if err := plugins.DecodeConfig(raw, &cfg); err != nil {
		return config{}, err
	}
	if cfg.Scenario != "" {
		if !reflect.DeepEqual(cfg, config{Scenario: cfg.Scenario}) {
			return config{},
				&plugins.ConfigError{Key: "scenario",
					Problem: "no other key is allowed beside it: put them into the file"}
		}
		return cfg, nil
	}
	if err := cfg.takeFormer(); err != nil {
		return config{}, err
	}
	if cfg.Nodes == nil {
		cfg.Nodes = []provider{{Name: host.Name, Inventories: map[string]inventory{
			"VCPU": {Total: 4, AllocationRatio: 4}, "MEMORY_MB": {Total: 8192, Reserved: 512}, "DISK_GB": {Total: 100},
		}}}
	}
	names, uuids := map[string]string{}, map[string]string{}
	for i := range cfg.Nodes {
		key := fmt.Sprintf("nodes[%d]", i)
		if err := check(&cfg.Nodes[i], key, "", names, uuids); err != nil {
			return config{}, err
		}
	}
	if err := cfg.checkReshape(); err != nil {
		return config{}, err
	}
	if err := cfg.checkCapabilities(); err != nil {
		return config{}, err
	}
	if err := cfg.checkGuestList(); err != nil {
		return config{}, err
	}
	if err := cfg.Faults.Validate(); err != nil {
		return config{}, err
	}
	return cfg, nil
}

// check checks a provider and those below it. names and uuids map those found so far to their keys.
func check(p *provider, key, parent string, names, uuids map[string]string) error {
	wrong := func(field, format string, args ...any) error {
		return &plugins.ConfigError{Key: key + field, Problem: fmt.Sprintf(format, args...)}
	}
	full := childName(parent, p.Name)
	if err := providertree.ValidateProviderName(full); err != nil || p.Name == "" {
		return wrong(".name",
			"%q: a resource provider has a name of 1 to 200 characters (children are named after their parent too)",
			p.Name)
	}
	if other, taken := names[full]; taken {
		return wrong(".name", "%q is the name of %s already", full, other)
	}
	names[full] = key
	if p.UUID != "" {
		uuid, err := providertree.CanonicalUUID(p.UUID)
		switch other, taken := uuids[uuid]; {
		case parent != "":
			return wrong(".uuid", "only nodes have one in the configuration")
		case err != nil:
			return wrong(".uuid", "%v", err)
		case taken:
			return wrong(".uuid", "is that of %s already", other)
		}
		uuids[uuid], p.UUID = key, uuid
	}
	for _, class := range slices.Sorted(maps.Keys(p.Inventories)) {
		inv := providertree.Inventories{class: providertree.Inventory(p.Inventories[class])}
		if err := inv.Validate(); err != nil {
			return wrong(".inventories."+class, "%v", err)
		}
	}
	for i, trait := range p.Traits {
		if err := providertree.ValidateTrait(trait); err != nil {
			return wrong(fmt.Sprintf(".traits[%d]", i), "%v", err)
		}
	}
	for i, aggregate := range p.Aggregates {
		if _, err := providertree.CanonicalUUID(aggregate); err != nil {
			return wrong(fmt.Sprintf(".aggregates[%d]", i), "%v", err)
		}
	}
	for i := range p.Children {
		if err := check(&p.Children[i], fmt.Sprintf("%s.children[%d]", key, i), full, names, uuids); err != nil {
			return err
		}
	}
	return nil
}

// childName returns the name of a provider below another: provider names are unique in Placement.
func childName(parent, name string) string {
	if parent == "" {
		return name
	}
	return parent + "_" + name
}
