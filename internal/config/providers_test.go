// SPDX-License-Identifier: Apache-2.0

package config

import (
	"path/filepath"
	"testing"
)

// TestProviderConfigDir: the provider.yaml files are beside the configuration file, as conf.d is,
// unless another directory is named.
func TestProviderConfigDir(t *testing.T) {
	bare := mustLoad(t, Options{Root: "/nonexistent",
		Environ: []string{}, Hostname: func() (string, error) { return "cn1", nil }, UID: func() int { return 0 }})
	if got, want := bare.ProviderConfigDir(), "/etc/compute-agent/provider_config"; got != want {
		t.Errorf("by default: %s, want %s", got, want)
	}
	file := write(t, map[string]string{"compute-agent.toml": "", "conf.d/1.toml": ""})
	if got, want := mustLoad(t, machine(file)).ProviderConfigDir(),
		filepath.Join(filepath.Dir(file), "provider_config"); got != want {
		t.Errorf("beside the file: %s, want %s", got, want)
	}
	file = write(t, map[string]string{"compute-agent.toml": "",
		"conf.d/1.toml": "[tracker]\nprovider_config_location = \"/etc/nova/provider_config\"\n"})
	if got, want := mustLoad(t, machine(file)).ProviderConfigDir(), "/etc/nova/provider_config"; got != want {
		t.Errorf("named: %s, want %s", got, want)
	}
}
