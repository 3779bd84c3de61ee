// SPDX-License-Identifier: Apache-2.0

package drivertest

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

	"github.com/compute-agent/compute-agent/plugins/internal/protocol"
)

var startChecks = []Check{
	{
		ID: "start/handshake", Title: "starts and completes the handshake in time",
		Protects: "a plugin that does not start is tried again and again, and its node reports nothing",
		Rule:     "Started with the agent's cookie, a plugin writes one line of go-plugin's handshake to standard output, before anything else, and serves gRPC with the certificates of that handshake.",
		See:      "plugins.Serve; proto: head of driver.proto",
		run:      func(ctx context.Context, b *bench) error { _, err := b.start(ctx); return err },
	},
	{
		ID: "start/info", Title: "says who it is before it is configured",
		Protects: "the agent cannot tell which driver it has started",
		Rule:     "Info works at any time and does not block. The name is 1 to 63 lower case letters, digits and hyphens; the version is not empty.",
		See:      "plugins.Info; proto: Plugin.Info", run: checkInfo,
	},
	{
		ID: "start/info-repeated", Title: "says the same whenever it is asked",
		Protects: "a driver whose abilities come and go is asked for what it cannot do",
		Rule:     "Name, version and capabilities belong to the binary: they do not change while it runs, nor with its configuration.",
		See:      "proto: InfoResponse", run: checkInfoRepeated,
	},
	{
		ID: "start/capabilities", Title: "announces well-formed capabilities, each once",
		Protects: "the agent takes a garbled list for a plugin without abilities",
		Rule:     "Capabilities are lower case words with underscores, each there once, at most 100.",
		See:      "proto: InfoResponse.capabilities", run: checkCapabilityNames,
	},
	{
		ID: "start/two-at-once", Title: "runs beside a second process of itself",
		Protects: "an update of the driver: the new process answers before the old one is ended",
		Rule:     "The agent may start a second process beside the first, to replace it after an update. Both must work.",
		See:      "plugins.Driver", run: checkTwoAtOnce,
	},
}

func checkInfo(ctx context.Context, b *bench) error {
	p, err := b.start(ctx)
	if err != nil {
		return notApplicable("the plugin does not start; see start/handshake")
	}
	info, err := p.info(ctx)
	if err != nil {
		return found("Info before Configure", "%s", said(err))
	}
	b.info = info
	var wrong []string
	if !regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`).MatchString(info.GetName()) {
		wrong = append(wrong, fmt.Sprintf("the name %q", info.GetName()))
	}
	if strings.TrimSpace(info.GetVersion()) == "" {
		wrong = append(wrong, "an empty version")
	}
	return several("Info before Configure", wrong)
}

func checkInfoRepeated(ctx context.Context, b *bench) error {
	p, err := b.shared(ctx)
	if err != nil {
		return err
	}
	for range 5 {
		again, err := p.info(ctx)
		if err != nil {
			return found("Info after Configure", "%s", said(err))
		}
		if !proto.Equal(b.info, again) {
			return found("Info before Configure, then after it", "{%v}, then {%v}", b.info, again)
		}
	}
	return nil
}

func checkCapabilityNames(ctx context.Context, b *bench) error {
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
	return several("Info", wrong)
}

func checkTwoAtOnce(ctx context.Context, b *bench) error {
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
		if err := several("two processes at once, "+sentUpdate(base.bare, base.node, nil)+fmt.Sprintf(" to the %s one", []string{"later", "earlier"}[i]), differences(base.own, after)); err != nil {
			return err
		}
	}
	return nil
}

const seeConfig = "plugins.Driver.Configure, plugins.DecodeConfig; proto: Plugin.Configure"

var configChecks = []Check{
	{
		ID: "config/schema", Title: "gives a JSON Schema of its configuration, before it is configured",
		Protects: "an operator's only description of what may be configured",
		Rule:     "ConfigSchema works before Configure and answers a JSON Schema of an object, or nothing if the driver takes no configuration; the same each time.",
		See:      "plugins.Driver.ConfigSchema", run: checkSchema,
	},
	{
		ID: "config/schema-strict", Title: "the schema knows all keys and admits no others",
		Protects: "a mistyped key that a tool finds valid and the driver then refuses",
		Rule:     "A driver's configuration is strict, so its schema says additionalProperties (or unevaluatedProperties) false, and it has every key that the driver takes.",
		See:      "plugins.Driver.ConfigSchema", run: checkSchemaStrict,
	},
	{
		ID: "config/accepted", Title: "takes the given configuration",
		Protects: "everything else: a driver that refuses its configuration reports nothing",
		Rule:     "What depends on the state of the machine is no error of Configure: a driver answers NotReady when it is asked for nodes or trees.",
		See:      seeConfig,
		run: func(ctx context.Context, b *bench) error {
			if _, err := b.start(ctx); err != nil {
				return notApplicable("the plugin does not start; see start/handshake")
			}
			b.endFresh()
			_, err := b.configured(ctx)
			return err
		},
	},
	{
		ID: "config/repeated", Title: "takes the same configuration again, and nothing changes",
		Protects: "a reload of the agent's configuration while guests run",
		Rule:     "Configure is called again whenever the configuration may have changed.",
		See:      seeConfig, run: checkConfigRepeated,
	},
	{
		ID: "config/empty", Title: "takes no bytes for {}",
		Protects: "a driver without a table in the agent's configuration",
		Rule:     "The configuration is a JSON object; none at all is the object {}.",
		See:      seeConfig, run: checkConfigEmpty,
	},
	{
		ID: "config/unknown-key", Title: "refuses a key that it does not know",
		Protects: "an operator whose mistyped key would be ignored in silence",
		Rule:     "Configure is strict: an unknown key is an error, a ConfigError.",
		See:      seeConfig, run: checkUnknownKey,
	},
	{
		ID: "config/names-key", Title: "says which key is wrong",
		Protects: "an operator who is to find the mistake",
		Rule:     "A ConfigError names the key, as its path below the driver's table, and says in words what is wrong with it.",
		See:      "plugins.ConfigError; proto: ConfigError", run: checkNamesKey,
	},
	{
		ID: "config/not-an-object", Title: "refuses what is no JSON object, and goes on",
		Protects: "the process: a bad configuration is an answer, no crash",
		Rule:     "Anything but a JSON object is a ConfigError, and the process goes on.",
		See:      seeConfig, run: checkNotAnObject,
	},
	{
		ID: "config/wrong-type", Title: "refuses a value of the wrong type",
		Protects: "a number in quotes that becomes 0",
		Rule:     "A value of another type than the schema says is a ConfigError.",
		See:      seeConfig, run: checkWrongType,
	},
	{
		ID: "config/keeps-former", Title: "keeps the former configuration when it refuses one",
		Protects: "a running node, when somebody makes a mistake in a file and reloads",
		Rule:     "On an error of Configure the former configuration stays in force.",
		See:      seeConfig, run: checkKeepsFormer,
	},
}

// readSchema is the schema, decoded; nil without one.
func (b *bench) readSchema(ctx context.Context) (schema map[string]any, err error) {
	p, err := b.start(ctx)
	if err != nil {
		return nil, notApplicable("the plugin does not start; see start/handshake")
	}
	var raw []byte
	for i := range 2 {
		again, err := p.schema(ctx)
		if err != nil {
			return nil, found("ConfigSchema before Configure", "%s", said(err))
		}
		if i > 0 && !bytes.Equal(raw, again) {
			return nil, found("ConfigSchema, twice", "two different answers")
		}
		raw = again
	}
	if len(raw) == 0 {
		return nil, nil
	}
	if err := json.Unmarshal(raw, &schema); err != nil {
		return nil, found("ConfigSchema", "what is no JSON object: %v", err)
	}
	return schema, nil
}

func checkSchema(ctx context.Context, b *bench) error {
	schema, err := b.readSchema(ctx)
	if err != nil || schema == nil {
		return err
	}
	if schema["type"] != "object" {
		return found("ConfigSchema", `a schema whose "type" is %v: a configuration is an object`, schema["type"])
	}
	return nil
}

func checkSchemaStrict(ctx context.Context, b *bench) error {
	schema, err := b.readSchema(ctx)
	if f := (*finding)(nil); errors.As(err, &f) {
		return notApplicable("there is no schema to look at; see config/schema")
	}
	if err != nil {
		return err
	}
	var config map[string]any
	if json.Unmarshal(b.opts.Config, &config) != nil {
		return notApplicable("the given configuration is no object")
	}
	if schema == nil && len(config) == 0 {
		return notApplicable("the driver takes no configuration")
	}
	var wrong []string
	if schema["additionalProperties"] != false && schema["unevaluatedProperties"] != false {
		wrong = append(wrong, "a schema that admits any key")
	}
	properties, _ := schema["properties"].(map[string]any)
	for key := range config {
		if _, ok := properties[key]; !ok {
			wrong = append(wrong, fmt.Sprintf("a schema without the key %q of the given configuration", key))
		}
	}
	slices.Sort(wrong)
	return several("ConfigSchema", wrong)
}

func checkConfigRepeated(ctx context.Context, b *bench) error {
	base, p, err := b.base(ctx)
	if err != nil {
		return err
	}
	for range 3 {
		if err := p.configure(ctx, b.opts.Config, b.stateDir()); err != nil {
			return found("Configure with the given configuration, again", "%s", said(err))
		}
	}
	return p.unchanged(ctx, base, "Configure three times with the same configuration, then ")
}

// unchanged checks that nodes and tree are what they were.
func (p *proc) unchanged(ctx context.Context, base *baseline, after string) error {
	nodes, err := p.nodes(ctx)
	if err != nil {
		return found(after+"AvailableNodes", "%s", said(err))
	}
	if !slices.Equal(nodes, base.nodes) {
		return found(after+"AvailableNodes", "%v; it was %v before", nodes, base.nodes)
	}
	tree, err := p.tree(ctx, base.bare, base.node)
	if err != nil {
		return err
	}
	return several(after+sentUpdate(base.bare, base.node, nil), differences(base.own, tree))
}

func checkConfigEmpty(ctx context.Context, b *bench) error {
	p, err := b.start(ctx)
	if err != nil {
		return notApplicable("the plugin does not start; see start/handshake")
	}
	empty, object := p.configure(ctx, nil, b.stateDir()), p.configure(ctx, []byte("{}"), b.stateDir())
	if (empty == nil) != (object == nil) {
		return found("Configure with no bytes, then with {}", "%s, then %s", verdict(empty), verdict(object))
	}
	return p.alive(ctx, "Configure with no bytes")
}

func verdict(err error) string {
	if err == nil {
		return "that is fine"
	}
	return said(err)
}

const unknownKey = "no_driver_has_this_key"

// withKey is the given configuration with one more key.
func (b *bench) withKey(key string, value any) ([]byte, error) {
	config := map[string]any{}
	if err := json.Unmarshal(b.opts.Config, &config); err != nil {
		return nil, notApplicable("the given configuration is no object")
	}
	config[key] = value
	return json.Marshal(config)
}

func (b *bench) refused(ctx context.Context) (error, error) {
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
		b.discard() // it has a configuration now that nobody meant
	}
	return answer, nil
}

func checkUnknownKey(ctx context.Context, b *bench) error {
	answer, err := b.refused(ctx)
	if err != nil {
		return err
	}
	sent := "Configure with the key " + unknownKey + " beside the given configuration"
	if answer == nil {
		return found(sent, "that is fine")
	}
	if kind(answer) != protocol.KindConfigError {
		return found(sent, "%s: no ConfigError in the status' details", said(answer))
	}
	return nil
}

func checkNamesKey(ctx context.Context, b *bench) error {
	answer, err := b.refused(ctx)
	if err != nil {
		return err
	}
	if kind(answer) != protocol.KindConfigError {
		return notApplicable("the driver answers no ConfigError; see config/unknown-key")
	}
	f := protocol.FailureOf(answer)
	if !strings.Contains(f.Key, unknownKey) || strings.TrimSpace(f.Words) == "" {
		return found("Configure with the key "+unknownKey, "a ConfigError of the key %q with the problem %q", f.Key, f.Words)
	}
	return nil
}

func checkNotAnObject(ctx context.Context, b *bench) error {
	p, err := b.shared(ctx)
	if err != nil {
		return err
	}
	for _, config := range []string{`[]`, `"text"`, `{"a":`, `7`, "\x00\xff"} {
		sent := fmt.Sprintf("Configure with %q", config)
		answer := p.configure(ctx, []byte(config), b.stateDir())
		if answer == nil {
			b.discard()
			return found(sent, "that is fine")
		}
		if err := p.alive(ctx, sent); err != nil {
			return err
		}
		if kind(answer) != protocol.KindConfigError {
			return found(sent, "%s: no ConfigError in the status' details", said(answer))
		}
	}
	return nil
}

func checkWrongType(ctx context.Context, b *bench) error {
	schema, err := b.readSchema(ctx)
	if err != nil {
		return notApplicable("there is no schema to look at; see config/schema")
	}
	properties, _ := schema["properties"].(map[string]any)
	wrong := map[any]any{"string": 17, "integer": "seventeen", "number": "seventeen", "boolean": "yes", "array": 17, "object": 17}
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
		sent := fmt.Sprintf("Configure with %s = %v, whose type is %v by the schema", key, value, property["type"])
		if answer == nil {
			b.discard()
			return found(sent, "that is fine")
		}
		if kind(answer) != protocol.KindConfigError {
			return found(sent, "%s: no ConfigError in the status' details", said(answer))
		}
		return nil
	}
	return notApplicable("the schema says the type of no key")
}

func checkKeepsFormer(ctx context.Context, b *bench) error {
	base, _, err := b.base(ctx)
	if err != nil {
		return err
	}
	answer, err := b.refused(ctx)
	if err != nil {
		return err
	}
	if answer == nil {
		return notApplicable("the driver refuses nothing; see config/unknown-key")
	}
	p, err := b.shared(ctx)
	if err != nil {
		return err
	}
	return p.unchanged(ctx, base, "Configure with a key that was refused, then ")
}
