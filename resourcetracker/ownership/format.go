// SPDX-License-Identifier: Apache-2.0

package ownership

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/compute-agent/compute-agent/internal/jsonkit"
	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/providertree"
)

// version is of the files' format. An older agent refuses a newer one: it would lose what it does
// not know. Version 2 has what is held back, version 3 what a former driver has left; without those
// a record is written as version 1, so that an older agent can take over again.
const version = 3

func (r *Record) version() int {
	least := 1
	for _, p := range r.Providers {
		if p.hasFormer() {
			return version
		}
		for _, owned := range p.Inventories {
			if owned.BeforeDrain != nil {
				least = 2
			}
		}
	}
	return least
}

func (p Provider) hasFormer() bool {
	for _, owned := range p.Inventories {
		if owned.Owner == Former {
			return true
		}
	}
	owners := append(slices.Collect(maps.Values(p.Traits)), slices.Collect(maps.Values(p.Aggregates))...)
	return p.Owner == Former || slices.Contains(owners, Former)
}

// The file: JSON, with Placement's names for what Placement has.
type (
	fileRecord struct {
		Version   int                     `json:"version"`
		Root      string                  `json:"root"`
		Node      string                  `json:"node"`
		Driver    string                  `json:"driver"`
		Created   bool                    `json:"created"`
		Pending   bool                    `json:"pending,omitempty"`
		Layout    int                     `json:"shape"` // the name in released versions of the format
		Providers map[string]fileProvider `json:"providers"`
	}
	fileProvider struct {
		Name        string                   `json:"name"`
		Parent      string                   `json:"parent_provider_uuid,omitempty"`
		Owner       Owner                    `json:"owner,omitempty"`
		Inventories map[string]fileInventory `json:"inventories,omitempty"`
		Traits      map[string]Owner         `json:"traits,omitempty"`
		Aggregates  map[string]Owner         `json:"aggregates,omitempty"`
	}
	fileInventory struct {
		Owner Owner `json:"owner"`
		providertree.Inventory
		BeforeDrain *providertree.Inventory `json:"held,omitempty"`
	}
)

// encode returns a record as it is kept in its file: the same record gives the same bytes.
func encode(r *Record) ([]byte, error) {
	f := fileRecord{
		Version:   r.version(),
		Root:      r.Root,
		Node:      r.Node,
		Driver:    r.Driver,
		Created:   r.Created,
		Pending:   r.Pending,
		Layout:    r.Layout,
		Providers: make(map[string]fileProvider, len(r.Providers)),
	}
	for uuid, p := range r.Providers {
		fp := fileProvider{Name: p.Name, Parent: p.Parent, Owner: p.Owner, Traits: p.Traits, Aggregates: p.Aggregates}
		for class, owned := range p.Inventories {
			fs := fileInventory{Owner: owned.Owner, Inventory: owned.Inventory.Normalize()}
			if owned.BeforeDrain != nil {
				held := owned.BeforeDrain.Normalize()
				fs.BeforeDrain = &held
			}
			put(&fp.Inventories, class, fs)
		}
		f.Providers[uuid] = fp
	}
	content, err := json.MarshalIndent(f, "", "  ")
	return append(content, '\n'), err
}

// decode is the reverse of encode. Whatever it is given, it returns a record that keeps all rules,
// or an error that is [ErrDamaged] or [ErrNewer].
func decode(content []byte) (*Record, error) {
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(content, &head); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	switch {
	case head.Version > version:
		return nil, fmt.Errorf("%w: it has format version %d, but this agent knows versions up to %d",
			ErrNewer, head.Version, version)
	case head.Version < 1:
		return nil, fmt.Errorf("%w: it has no format version", ErrDamaged)
	}
	var f fileRecord
	if err := jsonkit.Unmarshal(content, &f); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	r := &Record{Root: f.Root, Node: f.Node, Driver: f.Driver, Created: f.Created, Pending: f.Pending, Layout: f.Layout,
		Providers: make(map[string]Provider, len(f.Providers))}
	for uuid, fp := range f.Providers {
		p := Provider{Name: fp.Name, Parent: fp.Parent, Owner: fp.Owner, Traits: fp.Traits, Aggregates: fp.Aggregates}
		for class, s := range fp.Inventories {
			put(&p.Inventories, class,
				OwnedInventory{Owner: s.Owner, Inventory: s.Inventory, BeforeDrain: s.BeforeDrain})
		}
		r.Providers[uuid] = p
	}
	if err := r.validate(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return r, nil
}

// maxProblems is how many problems of one file are reported.
const maxProblems = 10

// validate reports the rules that a record breaks, the first few of them, in a fixed order.
func (r *Record) validate() error {
	var errs []error
	add := func(err error) {
		if err != nil && len(errs) < maxProblems {
			errs = append(errs, err)
		}
	}
	add(checkRoot(r.Root))
	add(providertree.ValidateProviderName(r.Node))
	if r.Layout < 0 {
		add(fmt.Errorf("layout version %d is negative", r.Layout))
	}
	for _, uuid := range sortedKeys(r.Providers) {
		p := r.Providers[uuid]
		for _, err := range p.problems(uuid) {
			add(fmt.Errorf("resource provider %q: %w", textutil.Clip(uuid, maxShown), err))
		}
	}
	return errors.Join(errs...)
}

func (p Provider) problems(uuid string) (errs []error) {
	add := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	add(checkUUID(uuid))
	if p.Parent != "" {
		add(checkUUID(p.Parent))
	}
	add(providertree.ValidateProviderName(p.Name))
	if p.Owner != "" {
		add(p.Owner.check())
	}
	for _, class := range sortedKeys(p.Inventories) {
		add(p.Inventories[class].Owner.check())
		add(providertree.Inventories{class: p.Inventories[class].Inventory}.Validate())
		if held := p.Inventories[class].BeforeDrain; held != nil {
			add(providertree.Inventories{class: *held}.Validate())
		}
	}
	for _, trait := range sortedKeys(p.Traits) {
		add(p.Traits[trait].check())
		add(providertree.ValidateTrait(trait))
	}
	for _, aggregate := range sortedKeys(p.Aggregates) {
		add(p.Aggregates[aggregate].check())
		add(checkUUID(aggregate))
	}
	return errs
}

func checkUUID(s string) error {
	if !providertree.IsCanonicalUUID(s) {
		return fmt.Errorf("%q is not a uuid in canonical form", textutil.Clip(s, maxShown))
	}
	return nil
}

func (o Owner) check() error {
	switch o {
	case Driver, Operator, Agent, Former:
		return nil
	}
	return fmt.Errorf("%q is not an owner", textutil.Clip(string(o), maxShown))
}
