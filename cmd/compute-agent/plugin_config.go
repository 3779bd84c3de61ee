// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/pluginhost"
	"github.com/compute-agent/compute-agent/internal/pluginhost/suite"
)

// authored is a driver's configuration in a driver author's file.
type authored struct {
	// driver is NAME of the table [drivers.NAME], or "" if the file has only the driver's own keys.
	driver string
	config json.RawMessage
	// args and env are those of [drivers.NAME], and what it says about the sandbox.
	args                  []string
	env                   map[string]string
	sandbox               string
	readPaths, writePaths []string
	allowChmod            bool
}

// readAuthored reads a file with the driver's own keys (the content of [drivers.NAME.config]), or a
// conf.d file with a table [drivers.NAME]. Both are TOML or, with the suffix .json, JSON. Its
// errors have exit codes.
func readAuthored(file string) (authored, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return authored{}, &exitError{exitUsage, fmt.Errorf("the driver's configuration: %w", err)}
	}
	wrong := func(err error) (authored, error) {
		return authored{}, &exitError{exitConfig, fmt.Errorf("the driver's configuration %s: %w", file, err)}
	}
	table, err := decodeTable(raw, filepath.Ext(file) == ".json")
	if err != nil {
		return wrong(err)
	}
	a, own, err := unwrap(table)
	if err != nil {
		return wrong(err)
	}
	if a.config, err = json.Marshal(own); err != nil {
		return wrong(err)
	}
	return a, nil
}

// decodeTable reads TOML or JSON. JSON numbers keep their form.
func decodeTable(raw []byte, isJSON bool) (map[string]any, error) {
	table := map[string]any{}
	if !isJSON {
		err := toml.Unmarshal(raw, &table)
		var at *toml.DecodeError
		if errors.As(err, &at) {
			row, column := at.Position()
			return nil, fmt.Errorf("line %d, column %d: %w", row, column, err)
		}
		return table, err
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	err := d.Decode(&table)
	switch {
	case err != nil:
		return nil, err
	case table == nil:
		return nil, errors.New("must be a JSON object, not null")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("must be one JSON object, with nothing after it")
	}
	return table, nil
}

// unwrap returns the driver's own keys. A table drivers that only contains tables marks a conf.d
// file, whose other keys are the agent's.
func unwrap(table map[string]any) (authored, map[string]any, error) {
	drivers, ok := table["drivers"].(map[string]any)
	if !ok || slices.ContainsFunc(slices.Collect(maps.Values(drivers)), func(v any) bool { _, is := v.(map[string]any); return !is }) {
		return authored{}, table, nil
	}
	names := slices.Sorted(maps.Keys(drivers))
	if len(names) != 1 {
		found := "no driver"
		if len(names) > 1 {
			found = "several drivers (" + strings.Join(names, ", ") + ")"
		}
		return authored{}, nil, fmt.Errorf("has %s below [drivers]: give a file with one table [drivers.NAME.config], or with only the keys of that table", found)
	}
	a, own := authored{driver: names[0]}, map[string]any{}
	for key, v := range drivers[a.driver].(map[string]any) {
		ok := true
		switch key {
		case "config":
			own, ok = v.(map[string]any)
		case "args":
			a.args, ok = stringList(v)
		case "env":
			a.env, ok = stringMap(v)
		case "sandbox":
			a.sandbox, ok = v.(string)
			ok = ok && slices.Contains([]string{config.SandboxLandlock, config.SandboxRequired, config.SandboxNone}, a.sandbox)
		case "read_paths":
			a.readPaths, ok = stringList(v)
		case "write_paths":
			a.writePaths, ok = stringList(v)
		case "allow_chmod":
			a.allowChmod, ok = v.(bool)
		}
		if !ok {
			return authored{}, nil, fmt.Errorf("drivers.%s.%s has the wrong type: %s", a.driver, key, kinds[key])
		}
	}
	return a, own, nil
}

// kinds describes the types of keys of [drivers.NAME].
var kinds = map[string]string{
	"config": "it must be a table", "args": "it must be a list of strings", "env": "it must be a table of strings",
	"sandbox": `it must be "landlock", "required" or "none"`, "read_paths": "it must be a list of absolute paths", "write_paths": "it must be a list of absolute paths",
	"allow_chmod": "it must be true or false",
}

// restrict has a driver started in the sandbox that the agent would start it in.
func (a authored) restrict(opts *suite.Options) {
	if opts.NoSandbox = a.sandbox == config.SandboxNone; opts.NoSandbox {
		return
	}
	opts.Sandbox = pluginhost.StandardSandbox(opts.Config, opts.Former)
	opts.Sandbox.Required, opts.Sandbox.Modes = a.sandbox == config.SandboxRequired, a.allowChmod
	opts.Sandbox.GrantRead, opts.Sandbox.GrantWrite = a.readPaths, a.writePaths
}

func stringList(v any) ([]string, bool) {
	list, ok := v.([]any)
	var out []string
	for _, e := range list {
		s, is := e.(string)
		out, ok = append(out, s), ok && is
	}
	return out, ok
}

func stringMap(v any) (map[string]string, bool) {
	table, ok := v.(map[string]any)
	out := map[string]string{}
	for key, e := range table {
		s, is := e.(string)
		out[key], ok = s, ok && is
	}
	return out, ok
}
