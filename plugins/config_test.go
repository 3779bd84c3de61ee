// SPDX-License-Identifier: Apache-2.0

package plugins_test

import (
	"errors"
	"testing"

	"github.com/compute-agent/compute-agent/plugins"
)

type device struct {
	Name  string `json:"name"`
	Count int    `json:"count"`
}

type devices struct {
	Devices []device          `json:"devices"`
	Types   map[string]device `json:"types"`
}

type whole struct {
	devices
	Host string `json:"host"`
	Part device `json:"part"`
}

// TestKeysOfWrongTypes: the key is the one that stands in the configuration, wherever the driver
// keeps it.
func TestKeysOfWrongTypes(t *testing.T) {
	for raw, want := range map[string]string{
		`{"host": 1}`:                     "host",
		`{"part": {"count": "x"}}`:        "part.count",
		`{"devices": {}}`:                 "devices",
		`{"devices": [{"count": "x"}]}`:   "devices.count",
		`{"types": {"a": {"name": 1}}}`:   "types.name",
		`{"types": {"a": {"count": []}}}`: "types.count",
		`{"Other": 1}`:                    "Other",
		`[]`:                              "",
	} {
		var into whole
		var wrong *plugins.ConfigError
		if err := plugins.DecodeConfig([]byte(raw), &into); !errors.As(err, &wrong) || wrong.Key != want {
			t.Errorf("%s: %v, key %q, want %q", raw, err, wrong.Key, want)
		}
	}
}
