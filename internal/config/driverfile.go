// SPDX-License-Identifier: Apache-2.0

package config

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
)

// ReadDriverFile reads the file of a driver's author: the driver's own keys (the content of
// [drivers.NAME.config]), or a conf.d file with a table [drivers.NAME]. Both are TOML or, with the
// suffix .json, JSON. name is NAME, or "" if the file has only the driver's own keys. Of the
// driver, Args, Env, Config and what the table says about the sandbox are set.
//
// Errors: an [*fs.PathError] for a file that cannot be read; an [ErrInvalid] for its content.
func ReadDriverFile(file string) (name string, d *Driver, err error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return "", nil, fmt.Errorf("the driver's configuration: %w", err)
	}
	table, err := decodeTable(raw, filepath.Ext(file) == ".json")
	if err == nil {
		name, d, err = driverIn(table)
	}
	if err != nil {
		return "", nil, DriverFileProblem(file, err)
	}
	return name, d, nil
}

// DriverFileProblem is an [ErrInvalid] about the file of a driver's author.
func DriverFileProblem(file string, err error) error {
	return &Problem{Source: Source{Kind: FromFile, Name: "the driver's configuration " + file}, What: err.Error(), cause: err}
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

// driverIn returns the driver in a table. A table drivers that only contains tables marks a conf.d
// file, whose other keys are the agent's.
func driverIn(table map[string]any) (name string, d *Driver, err error) {
	drivers, ok := table[driversSection].(map[string]any)
	if !ok || slices.ContainsFunc(slices.Collect(maps.Values(drivers)), func(v any) bool { _, is := v.(map[string]any); return !is }) {
		return "", &Driver{Config: table}, nil
	}
	names := slices.Sorted(maps.Keys(drivers))
	if len(names) != 1 {
		found := "no driver"
		if len(names) > 1 {
			found = "several drivers (" + strings.Join(names, ", ") + ")"
		}
		return "", nil, fmt.Errorf("has %s below [drivers]: give a file with one table [drivers.NAME.config], or with only the keys of that table", found)
	}
	name, d = names[0], &Driver{Config: map[string]any{}}
	for key, v := range drivers[name].(map[string]any) {
		ok, must := true, ""
		switch key {
		case "config":
			d.Config, ok = v.(map[string]any)
			must = "it must be a table"
		case "args":
			d.Args, ok = stringList(v)
			must = "it must be a list of strings"
		case "env":
			d.Env, ok = stringMap(v)
			must = "it must be a table of strings"
		case "sandbox":
			d.Sandbox, ok = v.(string)
			ok = ok && slices.Contains([]string{SandboxLandlock, SandboxRequired, SandboxNone}, d.Sandbox)
			must = `it must be "landlock", "required" or "none"`
		case "read_paths":
			d.ReadPaths, ok = stringList(v)
			must = "it must be a list of absolute paths"
		case "write_paths":
			d.WritePaths, ok = stringList(v)
			must = "it must be a list of absolute paths"
		case "allow_chmod":
			d.AllowChmod, ok = v.(bool)
			must = "it must be true or false"
		}
		if !ok {
			return "", nil, fmt.Errorf("drivers.%s.%s has the wrong type: %s", name, key, must)
		}
	}
	return name, d, nil
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
