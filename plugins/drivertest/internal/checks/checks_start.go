// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
)

var startChecks = []Check{
	{
		ID:       "start/handshake",
		Title:    "starts and completes the handshake in time",
		Protects: "inventory: a plugin that does not start is restarted again and again, and its node reports nothing",
		Rule: "Started with the agent's cookie, a plugin first writes one line of go-plugin's handshake to " +
			"standard output, then serves gRPC with the certificates of that handshake.",
		See: "plugins.Serve; proto: head of driver.proto",
		run: func(ctx context.Context, b *Bench) error { _, err := b.start(ctx); return err },
	},
	{
		ID: "start/info", Title: "answers Info before it is configured",
		Protects: "the agent's check that it started the right driver",
		Rule: "Info works at any time and does not block. The name is 1 to 63 lower case letters, digits and " +
			"hyphens; the version is not empty.",
		See: "plugins.Info; proto: Plugin.Info", run: checkInfo,
	},
	{
		ID: "start/info-repeated", Title: "answers Info the same way each time",
		Protects: "a driver whose capabilities change: the agent would call methods that it does not have",
		Rule: "Name, version and capabilities belong to the binary: they do not change while it runs, nor with " +
			"its configuration.",
		See: "proto: InfoResponse", run: checkInfoRepeated,
	},
	{
		ID: "start/capabilities", Title: "announces well-formed capabilities, each once",
		Protects: "the driver's capabilities: the agent ignores a malformed list",
		Rule:     "Capabilities are lower case words with underscores, each listed once, at most 100.",
		See:      "proto: InfoResponse.capabilities", run: checkCapabilityNames,
	},
	{
		ID: "start/two-at-once", Title: "runs beside a second process of itself",
		Protects: "an update of the driver: the new process answers before the old one is stopped",
		Rule: "The agent may start a second process beside the first, to replace it after an update. " +
			"Both must work.",
		See: "plugins.Driver", run: checkTwoAtOnce,
	},
}

func checkInfo(ctx context.Context, b *Bench) error {
	p, err := b.start(ctx)
	if err != nil {
		return notRun("the plugin does not start; see start/handshake")
	}
	info, err := p.info(ctx)
	if err != nil {
		return failf("Info before Configure", "%s", describe(err))
	}
	b.info = info
	var wrong []string
	if !regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`).MatchString(info.GetName()) { // not by the code of the agent
		wrong = append(wrong, fmt.Sprintf("the name %q", info.GetName()))
	}
	if strings.TrimSpace(info.GetVersion()) == "" {
		wrong = append(wrong, "an empty version")
	}
	return failLines("Info before Configure", wrong)
}

func checkInfoRepeated(ctx context.Context, b *Bench) error {
	p, err := b.shared(ctx)
	if err != nil {
		return err
	}
	for range 5 {
		again, err := p.info(ctx)
		if err != nil {
			return failf("Info after Configure", "%s", describe(err))
		}
		if !proto.Equal(b.info, again) {
			return failf("Info before Configure, then after it", "{%v}, then {%v}", b.info, again)
		}
	}
	return nil
}

func checkCapabilityNames(ctx context.Context, b *Bench) error {
	if _, err := b.shared(ctx); err != nil {
		return err
	}
	list := b.info.GetCapabilities()
	var wrong []string
	if len(list) > 100 {
		wrong = append(wrong, fmt.Sprintf("%d capabilities", len(list)))
	}
	for i, c := range list {
		if !regexp.MustCompile(`^[a-z][a-z0-9_]*$`).MatchString(c) {
			wrong = append(wrong, fmt.Sprintf("the capability %q", c))
		}
		if slices.Contains(list[:i], c) {
			wrong = append(wrong, fmt.Sprintf("the capability %q more than once", c))
		}
	}
	return failLines("Info", wrong)
}

func checkTwoAtOnce(ctx context.Context, b *Bench) error {
	base, first, err := b.base(ctx)
	if err != nil {
		return err
	}
	second, err := b.configured(ctx)
	if err != nil {
		return err
	}
	for i, p := range []*proc{second, first} {
		after, err := p.tree(ctx, base.bare, base.node)
		if err != nil {
			return err
		}
		if err := failLines("two processes at once, "+sentUpdate(base.bare, base.node, nil)+
			fmt.Sprintf(" to the %s one", []string{"later", "earlier"}[i]), differences(base.own, after)); err != nil {
			return err
		}
	}
	return nil
}

const seeConfig = "plugins.Driver.Configure, plugins.DecodeConfig; proto: Plugin.Configure"

var configChecks = []Check{
	{
		ID: "config/schema", Title: "returns a JSON Schema of its configuration, before it is configured",
		Protects: "an operator's only description of the configuration",
		Rule: "ConfigSchema works before Configure and returns a JSON Schema of an object, or nothing if the " +
			"driver takes no configuration; the same each time.",
		See: "plugins.Driver.ConfigSchema", run: checkSchema,
	},
	{
		ID: "config/schema-strict", Title: "lists all keys in the schema and allows no others",
		Protects: "a mistyped key that a tool accepts and the driver then rejects",
		Rule: "A driver's configuration is strict: its schema sets additionalProperties (or " +
			"unevaluatedProperties) to false and has every key that the driver accepts.",
		See: "plugins.Driver.ConfigSchema", run: checkSchemaStrict,
	},
	{
		ID: "config/accepted", Title: "accepts the given configuration",
		Protects: "everything else: a driver that rejects its configuration reports nothing",
		Rule: "Configure does not fail because of the machine's state: the driver returns NotReady from " +
			"AvailableNodes or UpdateProviderTree instead.",
		See: seeConfig,
		run: func(ctx context.Context, b *Bench) error {
			if _, err := b.start(ctx); err != nil {
				return notRun("the plugin does not start; see start/handshake")
			}
			b.endOwn()
			_, err := b.configured(ctx)
			return err
		},
	},
	{
		ID: "config/repeated", Title: "accepts the same configuration again, and nothing changes",
		Protects: "a reload of the agent's configuration while guests run",
		Rule:     "Configure is called again whenever the configuration may have changed.",
		See:      seeConfig, run: checkConfigRepeated,
	},
	{
		ID: "config/empty", Title: "treats an empty configuration as {}",
		Protects: "a driver without a table in the agent's configuration",
		Rule:     "The configuration is a JSON object; an empty one is the object {}.",
		See:      seeConfig, run: checkConfigEmpty,
	},
	{
		ID: "config/unknown-key", Title: "rejects an unknown key",
		Protects: "an operator whose mistyped key would be ignored",
		Rule:     "Configure is strict: an unknown key is a ConfigError.",
		See:      seeConfig, run: checkUnknownKey,
	},
	{
		ID: "config/names-key", Title: "names the invalid key",
		Protects: "an operator who must find the mistake",
		Rule:     "A ConfigError names the key, as its path below the driver's table, and describes the problem.",
		See:      "plugins.ConfigError; proto: ConfigError", run: checkNamesKey,
	},
	{
		ID: "config/not-an-object", Title: "rejects a configuration that is not a JSON object, and keeps running",
		Protects: "the process: an invalid configuration must not crash it",
		Rule:     "Anything but a JSON object is a ConfigError, and the process keeps running.",
		See:      seeConfig, run: checkNotAnObject,
	},
	{
		ID: "config/wrong-type", Title: "rejects a value of the wrong type",
		Protects: "a number in quotes that would become 0",
		Rule:     "A value whose type is not the schema's is a ConfigError.",
		See:      seeConfig, run: checkWrongType,
	},
	{
		ID: "config/keeps-former", Title: "keeps the former configuration when it rejects one",
		Protects: "a running node, when an operator makes a mistake in a file and reloads",
		Rule:     "When Configure fails, the former configuration stays in effect.",
		See:      seeConfig, run: checkKeepsFormer,
	},
}

// readSchema returns the decoded schema, or nil without one.
func (b *Bench) readSchema(ctx context.Context) (schema map[string]any, err error) {
	p, err := b.start(ctx)
	if err != nil {
		return nil, notRun("the plugin does not start; see start/handshake")
	}
	var raw []byte
	for i := range 2 {
		again, err := p.schema(ctx)
		if err != nil {
			return nil, failf("ConfigSchema before Configure", "%s", describe(err))
		}
		if i > 0 && !bytes.Equal(raw, again) {
			return nil, failf("ConfigSchema, twice", "two different answers")
		}
		raw = again
	}
	if len(raw) == 0 {
		return nil, nil
	}
	if err := json.Unmarshal(raw, &schema); err != nil {
		return nil, failf("ConfigSchema", "bytes that are not a JSON object: %v", err)
	}
	return schema, nil
}

func checkSchema(ctx context.Context, b *Bench) error {
	schema, err := b.readSchema(ctx)
	if err != nil || schema == nil {
		return err
	}
	if schema["type"] != "object" {
		return failf("ConfigSchema", `a schema whose "type" is %v: a configuration is an object`, schema["type"])
	}
	return nil
}

func checkSchemaStrict(ctx context.Context, b *Bench) error {
	schema, err := b.readSchema(ctx)
	if v := (*violation)(nil); errors.As(err, &v) {
		return notRun("the driver has no schema; see config/schema")
	}
	if err != nil {
		return err
	}
	var config map[string]any
	if json.Unmarshal(b.plugin.Config, &config) != nil {
		return notRun("the given configuration is not an object")
	}
	if schema == nil && len(config) == 0 {
		return notRun("the driver takes no configuration")
	}
	var wrong []string
	if schema["additionalProperties"] != false && schema["unevaluatedProperties"] != false {
		wrong = append(wrong, "a schema that allows any key")
	}
	properties, _ := schema["properties"].(map[string]any)
	for key := range config {
		if _, ok := properties[key]; !ok {
			wrong = append(wrong, fmt.Sprintf("a schema without the key %q of the given configuration", key))
		}
	}
	slices.Sort(wrong)
	return failLines("ConfigSchema", wrong)
}

func checkConfigRepeated(ctx context.Context, b *Bench) error {
	base, p, err := b.base(ctx)
	if err != nil {
		return err
	}
	for range 3 {
		if err := p.configure(ctx, b.plugin.Config, b.stateDir()); err != nil {
			return failf("Configure with the given configuration, again", "%s", describe(err))
		}
	}
	return p.unchanged(ctx, base, "Configure three times with the same configuration, then ")
}

// unchanged checks that nodes and tree are as before.
func (p *proc) unchanged(ctx context.Context, base *baseline, after string) error {
	nodes, err := p.nodes(ctx)
	if err != nil {
		return failf(after+"AvailableNodes", "%s", describe(err))
	}
	if !slices.Equal(nodes, base.nodes) {
		return failf(after+"AvailableNodes", "%v; it was %v before", nodes, base.nodes)
	}
	tree, err := p.tree(ctx, base.bare, base.node)
	if err != nil {
		return err
	}
	return failLines(after+sentUpdate(base.bare, base.node, nil), differences(base.own, tree))
}

func checkConfigEmpty(ctx context.Context, b *Bench) error {
	p, err := b.start(ctx)
	if err != nil {
		return notRun("the plugin does not start; see start/handshake")
	}
	empty, object := p.configure(ctx, nil, b.stateDir()), p.configure(ctx, []byte("{}"), b.stateDir())
	if (empty == nil) != (object == nil) {
		return failf("Configure with an empty configuration, then with {}",
			"%s, then %s", verdict(empty), verdict(object))
	}
	return p.alive(ctx, "Configure with an empty configuration")
}

func verdict(err error) string {
	if err == nil {
		return noError
	}
	return describe(err)
}

const (
	unknownKey = "no_driver_has_this_key"
	noError    = "no error"
)

// withKey returns the given configuration with one more key.
func (b *Bench) withKey(key string, value any) ([]byte, error) {
	config := map[string]any{}
	if err := json.Unmarshal(b.plugin.Config, &config); err != nil {
		return nil, notRun("the given configuration is not an object")
	}
	config[key] = value
	return json.Marshal(config)
}

func (b *Bench) refused(ctx context.Context) (error, error) {
	p, err := b.shared(ctx)
	if err != nil {
		return nil, err
	}
	config, err := b.withKey(unknownKey, true)
	if err != nil {
		return nil, err
	}
	answer := p.configure(ctx, config, b.stateDir())
	if answer == nil {
		b.discard() // it has accepted an invalid configuration
	}
	return answer, nil
}

func checkUnknownKey(ctx context.Context, b *Bench) error {
	answer, err := b.refused(ctx)
	if err != nil {
		return err
	}
	sent := "Configure with the key " + unknownKey + " beside the given configuration"
	if answer == nil {
		return failf(sent, noError)
	}
	if kind(answer) != protocol.KindConfigError {
		return failf(sent, "%s, without a ConfigError in the status' details", describe(answer))
	}
	return nil
}

func checkNamesKey(ctx context.Context, b *Bench) error {
	answer, err := b.refused(ctx)
	if err != nil {
		return err
	}
	if kind(answer) != protocol.KindConfigError {
		return notRun("the driver returns no ConfigError; see config/unknown-key")
	}
	f := protocol.FailureOf(answer)
	if !strings.Contains(f.Key, unknownKey) || strings.TrimSpace(f.Words) == "" {
		return failf("Configure with the key "+unknownKey,
			"a ConfigError for the key %q with the problem %q", f.Key, f.Words)
	}
	return nil
}

func checkNotAnObject(ctx context.Context, b *Bench) error {
	p, err := b.shared(ctx)
	if err != nil {
		return err
	}
	for _, config := range []string{`[]`, `"text"`, `{"a":`, `7`, "\x00\xff"} {
		sent := fmt.Sprintf("Configure with %q", config)
		answer := p.configure(ctx, []byte(config), b.stateDir())
		if answer == nil {
			b.discard()
			return failf(sent, noError)
		}
		if err := p.alive(ctx, sent); err != nil {
			return err
		}
		if kind(answer) != protocol.KindConfigError {
			return failf(sent, "%s, without a ConfigError in the status' details", describe(answer))
		}
	}
	return nil
}

func checkWrongType(ctx context.Context, b *Bench) error {
	schema, err := b.readSchema(ctx)
	if err != nil {
		return notRun("the driver has no schema; see config/schema")
	}
	properties, _ := schema["properties"].(map[string]any)
	wrong := map[any]any{"string": 17, "integer": "seventeen", "number": "seventeen",
		"boolean": "yes", "array": 17, "object": 17}
	for _, key := range sortedKeys(properties) {
		property, _ := properties[key].(map[string]any)
		value, ok := wrong[property["type"]]
		if !ok {
			continue
		}
		config, err := b.withKey(key, value)
		if err != nil {
			return err
		}
		p, err := b.shared(ctx)
		if err != nil {
			return err
		}
		answer := p.configure(ctx, config, b.stateDir())
		sent := fmt.Sprintf("Configure with %s = %v, whose type in the schema is %v", key, value, property["type"])
		if answer == nil {
			b.discard()
			return failf(sent, noError)
		}
		if kind(answer) != protocol.KindConfigError {
			return failf(sent, "%s, without a ConfigError in the status' details", describe(answer))
		}
		return nil
	}
	return notRun("no key has a type in the schema")
}

func checkKeepsFormer(ctx context.Context, b *Bench) error {
	base, _, err := b.base(ctx)
	if err != nil {
		return err
	}
	answer, err := b.refused(ctx)
	if err != nil {
		return err
	}
	if answer == nil {
		return notRun("the driver rejects no key; see config/unknown-key")
	}
	p, err := b.shared(ctx)
	if err != nil {
		return err
	}
	return p.unchanged(ctx, base, "Configure with a rejected key, then ")
}
