// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"

	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/resourcetracker/providerconfig"
)

// openProviders reads the provider.yaml files for the first time. Invalid ones are fatal, as the rest of the configuration
// is: to go on without them would take back from Placement what they add.
func openProviders(cfg *config.Config) (*providerconfig.Source, error) {
	source, err := providerconfig.Open(cfg.ProviderConfigDir())
	if err != nil {
		return nil, fmt.Errorf("%w: tracker.provider_config_location: %w", config.ErrInvalid, err)
	}
	return source, nil
}

// providerConfig is what the provider.yaml files say at the moment. Every pass asks, so that files that changed take effect
// at the next one. Invalid files are told once and change nothing.
//
// Cost: one directory listing and one stat per file; the files are read when they changed.
func (a *Agent) providerConfig() *providerconfig.Config {
	reloaded, err := a.providers.Poll()
	switch {
	case err != nil:
		a.log.Error().Str("directory", a.providers.Dir()).Err(err).
			Msg("The provider.yaml files changed and are invalid. The previous ones stay in effect; `compute-agent config check` shows what is wrong.")
	case reloaded:
		a.logProviders("The provider.yaml files changed and were read again.")
	}
	return a.providers.Config()
}

// reloadProviders reads the provider.yaml files again because somebody asked for it, maybe from another directory.
func (a *Agent) reloadProviders(dir string) {
	former := a.providers.Config()
	if err := a.providers.Use(dir); err != nil {
		a.log.Error().Str("directory", dir).Str("in_force", a.providers.Dir()).Err(err).
			Msg("Reload: the provider.yaml files are invalid. The previous ones stay in effect; `compute-agent config check` shows what is wrong.")
		return
	}
	if !a.providers.Config().Same(former) {
		a.logProviders("Reload: the provider.yaml files changed.")
	}
}

// logProviders says what is in force now, and what is odd about it.
func (a *Agent) logProviders(msg string) {
	now := a.providers.Config()
	a.log.Info().Str("directory", a.providers.Dir()).Strs("files", now.Files()).Int("entries", now.Len()).Msg(msg)
	for _, w := range a.providers.Warnings() {
		a.log.Warn().Stringer("at", w.Place).Str("path", w.Path).Str("remedy", w.Remedy).Msg("provider.yaml: " + w.What + ".")
	}
}
