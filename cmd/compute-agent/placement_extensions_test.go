// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/placement/api"
)

// TestConfiguredExtensionsAreThoseOfPlacement: the configuration accepts the extensions that the server has.
func TestConfiguredExtensionsAreThoseOfPlacement(t *testing.T) {
	if diff := cmp.Diff(api.ExtensionNames(), config.PlacementExtensions); diff != "" {
		t.Error(diff)
	}
}
