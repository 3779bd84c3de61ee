// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	_ "embed" // the keys
	"fmt"
	"iter"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pelletier/go-toml/v2"
)

// keysFile declares every section and key, and says how.
//
//go:embed keys.toml
var keysFile string

// section is one table of the file.
type section struct {
	Name    string
	Readers []Service
	Doc     string
	Key     []declaration

	index []int // Where its struct is in [Config].
	keys  []key // Of a certain Config.
}

// declaration is what keys.toml says of a key.
type declaration struct {
	Name     string
	Field    string // As a name of a key; empty: the name is that of the field.
	Live     bool   // SIGHUP applies a change; otherwise the agent must be restarted.
	Doc      string
	Is       string // Which of rules it has; empty: none.
	Allowed  string // Empty: the words of its rule.
	Default  any    // As TOML decodes it; nil: the zero value.
	Required bool   // The empty array is refused.
	Values   []string
	Min, Max limit
	Zero     string // What "0s" means; empty: it is not allowed.
	Like     string // The key of [plugins] that holds while this one is "0s", with whose limits.

	index []int // Where its field is in the struct of its section.
}

// key is a key whose field is that of a certain [Config] or [Driver].
type key struct {
	*declaration
	field
	value reflect.Value
}

// reset gives the key its default.
func (k key) reset() {
	k.value.SetZero()
	if k.Default != nil {
		k.set(k.Default)
	}
}

// limit is a number, or a duration in nanoseconds.
type limit int64

// UnmarshalText reads a duration.
func (l *limit) UnmarshalText(text []byte) error {
	d, err := time.ParseDuration(string(text))
	*l = limit(d)
	return err
}

// declared are all sections, in the order in which Defaults writes them; the last is of a driver.
var declared = sync.OnceValue(func() []section {
	var file struct{ Section []section }
	if err := toml.NewDecoder(strings.NewReader(keysFile)).DisallowUnknownFields().Decode(&file); err != nil {
		panic(err)
	}
	var plugins []declaration
	for i := range file.Section {
		s, of := &file.Section[i], reflect.TypeFor[Driver]()
		if s.Name != driversSection {
			s.index = indexOf(reflect.TypeFor[Config](), s.Name)
			of = reflect.TypeFor[Config]().FieldByIndex(s.index).Type
		}
		for j := range s.Key {
			d := &s.Key[j]
			d.index = indexOf(of, cmp.Or(d.Field, d.Name))
			if _, known := rules[d.Is]; d.Is != "" && !known {
				panic("config: no rule " + d.Is)
			}
			if d.Like != "" {
				like := plugins[slices.IndexFunc(plugins, func(p declaration) bool { return p.Name == d.Like })]
				d.Min, d.Max, d.Zero = like.Min, like.Max, "as plugins."+d.Like
			}
		}
		if s.Name == "plugins" {
			plugins = s.Key
		}
	}
	return file.Section
})

// driverSection is the section [drivers.NAME].
func driverSection() section {
	all := declared()
	return all[len(all)-1]
}

// indexOf finds the field of a name such as state_dir, or timeouts.start for one in another struct.
func indexOf(of reflect.Type, name string) (index []int) {
	for part := range strings.SplitSeq(strings.ReplaceAll(name, "_", ""), ".") {
		f, ok := of.FieldByNameFunc(func(field string) bool { return strings.EqualFold(field, part) })
		if !ok {
			panic("config: no field for " + name)
		}
		index, of = append(index, f.Index...), f.Type
	}
	return index
}

// bind makes the keys whose fields are those of a struct.
func bind(declarations []declaration, of reflect.Value) []key {
	keys := make([]key, len(declarations))
	for i := range declarations {
		d := &declarations[i]
		at := of.FieldByIndex(d.index)
		keys[i] = key{d, d.fieldOf(at.Addr().Interface()), at}
	}
	return keys
}

// fieldOf is the field that a pointer points to.
func (d *declaration) fieldOf(at any) field {
	of := rules[d.Is]
	of.words = cmp.Or(d.Allowed, of.words)
	switch at := at.(type) {
	case *string:
		value := text{at, d.Default != nil, of}
		switch {
		case d.Values != nil:
			return choice{at, d.Values}
		case d.Is == "secret":
			return secretFile{value}
		}
		return value
	case *bool:
		return toggle{at}
	case *int:
		return number{at, int(d.Min), int(cmp.Or(d.Max, math.MaxInt32))}
	case *float64:
		return fraction{at}
	case *time.Duration:
		return duration{at, time.Duration(d.Min), time.Duration(d.Max), d.Zero}
	case *[]string:
		return list{at, d.Required, of}
	case *map[string]string:
		return stringTable{at, of}
	case *map[string]any:
		return freeTable{at, of}
	}
	panic(fmt.Sprintf("config: no value is a %T", at))
}

// sections are all sections but [drivers.NAME].
func (c *Config) sections() []section {
	all := slices.Clone(declared())
	all = all[:len(all)-1]
	for i := range all {
		all[i].keys = bind(all[i].Key, reflect.ValueOf(c).Elem().FieldByIndex(all[i].index))
	}
	return all
}

// keys are the keys of [drivers.NAME]. SIGHUP applies all of them: the driver's process is
// configured again or, where it must be, replaced.
func (d *Driver) keys() []key { return bind(driverSection().Key, reflect.ValueOf(d).Elem()) }

// section is the section of that name, or nil.
func (c *Config) section(name string) *section {
	all := c.sections()
	if i := slices.IndexFunc(all, func(s section) bool { return s.Name == name }); i >= 0 {
		return &all[i]
	}
	return nil
}

// keys iterates over the keys of all sections and drivers, by their whole names.
func (c *Config) keys() iter.Seq2[string, key] {
	return func(yield func(string, key) bool) {
		tables := c.sections()
		for _, name := range sortedKeys(c.Drivers) {
			tables = append(tables, section{Name: dotted(driversSection, name), keys: c.Drivers[name].keys()})
		}
		for _, s := range tables {
			for _, k := range s.keys {
				if !yield(s.Name+"."+k.Name, k) {
					return
				}
			}
		}
	}
}

// named is the key of that name, or nil.
func named(keys []key, name string) *key {
	if i := slices.IndexFunc(keys, func(k key) bool { return k.Name == name }); i >= 0 {
		return &keys[i]
	}
	return nil
}

// keysBelow are the keys of a table in a table: timeouts.start is start in the table timeouts.
func keysBelow(keys []key, table string) []key {
	var out []key
	for _, k := range keys {
		if name, below := strings.CutPrefix(k.Name, table+"."); below {
			d := *k.declaration
			d.Name, k.declaration = name, &d
			out = append(out, k)
		}
	}
	return out
}

func names(keys []key) []string {
	out := make([]string, len(keys))
	for i, k := range keys {
		out[i] = k.Name
	}
	return out
}

// Service is a process that reads the configuration.
type Service string

// The services, by what people call them.
const (
	AgentService      Service = "the agent"
	PlacementService  Service = "Placement"
	ComputeAPIService Service = "the compute API"
	CellService       Service = "cells"
)

// allServices read a section that is about every process.
var allServices = []Service{AgentService, PlacementService, ComputeAPIService, CellService}

// SectionsOf are the names of the sections that any of some services reads, sorted.
func SectionsOf(services ...Service) []string {
	var out []string
	for _, s := range declared() {
		if slices.ContainsFunc(s.Readers, func(s Service) bool { return slices.Contains(services, s) }) {
			out = append(out, s.Name)
		}
	}
	slices.Sort(out)
	return out
}

// readBy lists the services that read a section.
func readBy(readers []Service) string {
	if len(readers) == len(allServices) {
		return "all services"
	}
	words := make([]string, len(readers))
	for i, s := range readers {
		words[i] = string(s)
	}
	return series(words, "and")
}
