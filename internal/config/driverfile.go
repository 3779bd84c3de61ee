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
	return &Problem{Source: Source{Kind: FromFile, Name: "the driver's configuration " + file},
		What: err.Error(), cause: err}
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
	if !ok || slices.ContainsFunc(slices.Collect(maps.Values(drivers)),
		func(v any) bool { _, is := v.(map[string]any); return !is }) {
		return "", &Driver{Config: table}, nil
	}
	names := slices.Sorted(maps.Keys(drivers))
	if len(names) != 1 {
		found := "no driver"
		if len(names) > 1 {
			found = "several drivers (" + strings.Join(names, ", ") + ")"
		}
		return "", nil, fmt.Errorf(
			"has %s below [drivers]: give a file with one table [drivers.NAME.config], or with only the keys "+
				"of that table", found)
	}
	name, d = names[0], &Driver{Config: map[string]any{}}
	for key, v := range drivers[name].(map[string]any) {
		known, is := d.authorKeys()[key]
		ok := !is || known.set(v) == nil
		if key == "config" {
			d.Config, ok = v.(map[string]any)
			known.must = "a table"
		}
		if !ok {
			return "", nil, fmt.Errorf("drivers.%s.%s has the wrong type: it must be %s", name, key, known.must)
		}
	}
	return name, d, nil
}

// authorKeys are the keys of [drivers.NAME] beside the driver's own. Values are the agent's affair:
// only their types are checked.
func (d *Driver) authorKeys() map[string]authorKey {
	return map[string]authorKey{
		"args": {list{at: &d.Args}, "a list of strings"},
		"env":  {stringTable{&d.Env, rule{check: func(string) *fault { return nil }}}, "a table of strings"},
		"sandbox": {choice{at: &d.Sandbox, values: sandboxes},
			`"landlock", "required" or "none"`},
		"read_paths":  {list{at: &d.ReadPaths}, "a list of absolute paths"},
		"write_paths": {list{at: &d.WritePaths}, "a list of absolute paths"},
		"allow_chmod": {toggle{at: &d.AllowChmod}, "true or false"},
	}
}

type authorKey struct {
	field
	must string
}
