// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/plugins"
)

// config is the table [drivers.chaos.config]: for each call, the deeds to do in it, in their order, before it does what it
// should.
type config struct {
	Configure string `json:"configure"`
	Nodes     string `json:"nodes"`
	Update    string `json:"update"`
	Health    string `json:"health"`
	Watch     string `json:"watch"`
	Shutdown  string `json:"shutdown"`
	// Those about instances.
	List    string `json:"list"`
	Spawn   string `json:"spawn"`
	Destroy string `json:"destroy"`
	Power   string `json:"power"`
	Events  string `json:"events"`
	// File is what the deed wait waits for.
	File string `json:"file"`
}

// deedsOf are the configured deeds by the key of the call.
func (c config) deedsOf() map[string]string {
	return map[string]string{
		"configure": c.Configure, "nodes": c.Nodes, "update": c.Update, "health": c.Health, "watch": c.Watch, "shutdown": c.Shutdown,
		"list": c.List, "spawn": c.Spawn, "destroy": c.Destroy, "power": c.Power, "events": c.Events,
	}
}

// parse reads a configuration.
//
// Errors: [*plugins.ConfigError].
func parse(raw json.RawMessage) (config, error) {
	var cfg config
	if err := plugins.DecodeConfig(raw, &cfg); err != nil {
		return config{}, err
	}
	for key, names := range cfg.deedsOf() {
		for _, name := range strings.Fields(names) {
			if known := deedsIn(key); !slices.Contains(known, name) {
				return config{}, &plugins.ConfigError{Key: key, Problem: fmt.Sprintf("%q is nothing that can be done there: %s", name, strings.Join(known, ", "))}
			}
			if name == "wait" && cfg.File == "" {
				return config{}, &plugins.ConfigError{Key: "file", Problem: "is missing: what should be waited for?"}
			}
		}
	}
	return cfg, nil
}

// deedsIn are the names of what can be done in a call, sorted.
func deedsIn(key string) []string {
	names := slices.Collect(maps.Keys(deeds))
	switch key {
	case "update":
		names = slices.AppendSeq(names, maps.Keys(treeDeeds))
	case "list":
		names = slices.AppendSeq(names, maps.Keys(listDeeds))
	case "spawn", "power":
		names = slices.AppendSeq(names, maps.Keys(answerDeeds))
	case "events":
		names = append(names, garbled)
	}
	slices.Sort(names)
	return names
}

// says is a deed in words.
func says(name string) string {
	for _, words := range []string{deeds[name].says, treeDeeds[name].says, listDeeds[name].says, answerDeeds[name].says} {
		if words != "" {
			return words
		}
	}
	return "sends events of what can be no instance"
}

// schema is the JSON Schema of the configuration, with every deed in words.
func schema() []byte {
	properties := map[string]any{
		"file": map[string]any{"type": "string", "description": "What the deed wait waits for."},
	}
	for key := range (config{}).deedsOf() {
		words := "Deeds in this call, separated by spaces."
		for _, name := range deedsIn(key) {
			words += fmt.Sprintf(" %s: %s.", name, says(name))
		}
		properties[key] = map[string]any{"type": "string", "description": words}
	}
	out, err := json.MarshalIndent(map[string]any{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Configuration of the chaos driver",
		"type": "object", "additionalProperties": false, "properties": properties,
	}, "", "  ")
	if err != nil { // strings and maps of them
		panic(err)
	}
	return out
}
