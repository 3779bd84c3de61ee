// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/internal/config"
	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/placement/ledger"
	"github.com/compute-agent/compute-agent/providertree"
	"github.com/compute-agent/compute-agent/resourcetracker/providerconfig"
)

// openProviders reads the provider.yaml files at start-up. Errors are fatal, because continuing
// without the files would remove what they add from Placement.
func openProviders(cfg *config.Config) (*providerconfig.Source, error) {
	source, err := providerconfig.Open(cfg.ProviderConfigDir())
	if err != nil {
		return nil, fmt.Errorf("%w: tracker.provider_config_location: %w", config.ErrInvalid, err)
	}
	return source, nil
}

// providerConfig returns the current provider.yaml files, reloaded if they changed. Invalid files
// are logged once and change nothing. It is called in every pass.
//
// Cost: one directory listing and one stat per file.
func (a *Agent) providerConfig() *providerconfig.Config {
	reloaded, err := a.providers.Poll()
	switch {
	case err != nil:
		a.log.Error().Str("directory", a.providers.Dir()).Err(err).
			Msg("The provider.yaml files changed and are invalid. The previous ones stay in effect; `compute-agent " +
				"config check` shows what is wrong.")
	case reloaded:
		a.logProviders("Reloaded the changed provider.yaml files.")
	}
	return a.providers.Config()
}

// reloadProviders reads the provider.yaml files at a reload, possibly from another directory.
func (a *Agent) reloadProviders(dir string) {
	previous := a.providers.Config()
	if err := a.providers.ReloadFrom(dir); err != nil {
		a.log.Error().Str("directory", dir).Str("in_effect", a.providers.Dir()).Err(err).
			Msg("Reload: the provider.yaml files are invalid. The previous ones stay in effect; `compute-agent " +
				"config check` shows what is wrong.")
		return
	}
	if !a.providers.Config().Same(previous) {
		a.logProviders("Reload: the provider.yaml files changed.")
	}
}

// logProviders logs the files in effect and their warnings.
func (a *Agent) logProviders(msg string) {
	now := a.providers.Config()
	a.log.Info().Str("directory", a.providers.Dir()).Strs("files", now.Files()).Int("entries", now.Len()).Msg(msg)
	for _, w := range a.providers.Warnings() {
		a.log.Warn().Stringer("at", w.Place).Str("path", w.Path).Str("hint", w.Hint).
			Msg("provider.yaml: " + w.What + ".")
	}
}

// UnknownStandardNames returns a warning for each name that is neither custom nor standard, with a
// suggestion: sorted, classes first.
func UnknownStandardNames(classes, traits []string) []string {
	out := nameList{
		what: "resource class", list: "os-resource-classes " + ledger.OSResourceClassesVersion,
		known:   ledger.StandardClasses(),
		meaning: "a Placement without it rejects the provider's inventory",
	}.unknown(classes)
	return append(out, nameList{
		what: "trait", list: "os-traits " + ledger.OSTraitsVersion, known: ledger.StandardTraits(),
		meaning: "it is omitted if Placement does not have it",
	}.unknown(traits)...)
}

type nameList struct {
	what, list, meaning string
	known               []string
}

func (n nameList) unknown(names []string) []string {
	sorted := slices.Clone(names)
	slices.Sort(sorted)
	var out []string
	for _, name := range slices.Compact(sorted) {
		if strings.HasPrefix(name, providertree.CustomPrefix) || slices.Contains(n.known, name) {
			continue
		}
		hint := "custom names begin with " + providertree.CustomPrefix
		if near := textutil.Suggest(name, n.known, max(2, len(name)/4)); near != "" {
			hint = "did you mean " + near + "?"
		}
		out = append(out, fmt.Sprintf("the %s %s is not in %s, and %s; %s", n.what, name, n.list, n.meaning, hint))
	}
	return out
}
