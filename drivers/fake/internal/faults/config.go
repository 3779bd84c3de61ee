// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/plugins"
)

// Config is the key faults: the driver's intended faults. The value for a call is the names of
// faults, separated by spaces, which happen in that order.
type Config struct {
	Configure string `json:"configure" toml:"configure"`
	Nodes     string `json:"nodes" toml:"nodes"`
	Update    string `json:"update" toml:"update"`
	Health    string `json:"health" toml:"health"`
	Watch     string `json:"watch" toml:"watch"`
	Shutdown  string `json:"shutdown" toml:"shutdown"`
	// Those of calls about instances.
	List    string `json:"list" toml:"list"`
	Spawn   string `json:"spawn" toml:"spawn"`
	Check   string `json:"check" toml:"check"`
	Destroy string `json:"destroy" toml:"destroy"`
	Power   string `json:"power" toml:"power"`
	Depart  string `json:"depart" toml:"depart"`
	Arrive  string `json:"arrive" toml:"arrive"`
	Leave   string `json:"leave" toml:"leave"`
	Events  string `json:"events" toml:"events"`
	// Reshape is what is wrong with a reshape, one of [Reshapes].
	Reshape string `json:"reshape" toml:"reshape"`
	// File is what the fault wait waits for.
	File string `json:"file" toml:"file"`
}

// calls are the faults by the key of the call.
func (c Config) calls() map[string]string {
	return map[string]string{
		"configure": c.Configure, "nodes": c.Nodes, "update": c.Update, "health": c.Health,
		"watch": c.Watch, "shutdown": c.Shutdown,
		"list": c.List, "spawn": c.Spawn, "destroy": c.Destroy, "power": c.Power, "events": c.Events,
		"depart": c.Depart, "arrive": c.Arrive,
		"leave": c.Leave, "check": c.Check,
	}
}

// Validate returns an error unless each fault exists.
//
// Errors: [*plugins.ConfigError].
func (c Config) Validate() error {
	wrong := func(key, format string, args ...any) error {
		return &plugins.ConfigError{Key: "faults." + key, Problem: fmt.Sprintf(format, args...)}
	}
	for key, names := range c.calls() {
		for _, name := range strings.Fields(names) {
			if known := faultsIn(key); !slices.Contains(known, name) {
				return wrong(key, "%q: must be some of %s", name, strings.Join(known, ", "))
			}
			if name == "wait" && c.File == "" {
				return wrong("file", "must be the path of the file that wait waits for")
			}
		}
	}
	if !slices.Contains(Reshapes, c.Reshape) {
		return wrong("reshape", "%q: must be one of %s", c.Reshape, strings.Join(Reshapes[1:], ", "))
	}
	return nil
}

// faultsIn are the names of the faults that a call can have, sorted.
func faultsIn(call string) []string {
	names := slices.Collect(maps.Keys(callFaults))
	switch call {
	case "update":
		names = slices.AppendSeq(names, maps.Keys(treeFaults))
	case "list":
		names = slices.AppendSeq(names, maps.Keys(listFaults))
	case "spawn", "power", "arrive":
		names = slices.AppendSeq(names, maps.Keys(instanceFaults))
	case "events":
		names = append(names, invalidEvents)
	}
	slices.Sort(names)
	return names
}

// description says what a fault does.
func description(name string) string {
	for _, text := range []string{callFaults[name].text,
		treeFaults[name].text, listFaults[name].text, instanceFaults[name].text} {
		if text != "" {
			return text
		}
	}
	return "sends events about instances that cannot exist"
}

// WithFaults returns the JSON Schema of the configuration with the key faults, which describes each
// fault.
func WithFaults(schema []byte) []byte {
	properties := map[string]any{
		"file": map[string]any{"type": "string", "description": "Path of the file that the fault wait waits for."},
		"reshape": map[string]any{"enum": Reshapes,
			"description": "What is wrong with a reshape: again: it needs another one. fail: it fails for " +
				"all that it moves. lose, invent: a unit of each move is missing, or one too many. swap: consumers " +
				"get what was moved for others. forget: " +
				"consumers are missing. crowd: everything moves to one place. ignore: the tree is edited without a " +
				"reshape. repeat: it needs one in every pass."},
	}
	for call := range (Config{}).calls() {
		text := "Faults in this call, separated by spaces."
		for _, name := range faultsIn(call) {
			text += fmt.Sprintf(" %s: %s.", name, description(name))
		}
		properties[call] = map[string]any{"type": "string", "description": text}
	}
	var all map[string]any
	err := json.Unmarshal(schema, &all)
	if err == nil {
		all["properties"].(map[string]any)["faults"] = map[string]any{
			"description": "Intended faults of the driver, by call. For tests of an agent: never use them on a host " +
				"with guests.",
			"type": "object", "additionalProperties": false, "properties": properties,
		}
		schema, err = json.MarshalIndent(all, "", "  ")
	}
	if err != nil { // the schema is embedded
		panic(err)
	}
	return schema
}
