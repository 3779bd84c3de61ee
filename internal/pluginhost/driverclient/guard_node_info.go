// SPDX-License-Identifier: Apache-2.0

package driverclient

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/plugins"
	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
	"github.com/compute-agent/compute-agent/providertree"
)

// maxProductName is enough for a product name in most scripts, in bytes; the protocol bounds
// characters.
const maxProductName = 2 * protocol.MaxProductName

// checkLayout checks the layout version in the response of Configure.
func checkLayout(version int32, capabilities []string) error {
	switch announced := slices.Contains(capabilities, protocol.CapabilityLayouts); {
	case version < 0 || version > protocol.MaxLayout:
		return fmt.Errorf("layout version %d: must be 1 to %d, or 0 for none", version, protocol.MaxLayout)
	case version > 0 && !announced:
		return fmt.Errorf("layout version %d, and the plugin does not announce the capability %q",
			version, protocol.CapabilityLayouts)
	}
	return nil
}

// checkCapabilities checks the capability traits in a response of UpdateProviderTree. The result is
// nil for a plugin that reports none.
func checkCapabilities(traits map[string]bool, capabilities []string) (map[string]bool, error) {
	switch {
	case !slices.Contains(capabilities, protocol.CapabilityCapabilities):
		if len(traits) > 0 {
			return nil, fmt.Errorf("it has capability traits, and the plugin does not announce the capability %q",
				protocol.CapabilityCapabilities)
		}
		return nil, nil
	case traits == nil:
		return map[string]bool{}, nil
	}
	d := &defects{}
	for _, trait := range slices.Sorted(maps.Keys(traits)) {
		switch err := providertree.ValidateTrait(trait); {
		case err != nil:
			d.add("capability %v", err)
		case slices.Contains(providertree.AgentTraits, trait):
			d.add("capability trait %s is the agent's: a driver must not report it", trait)
		}
	}
	if err := d.err(); err != nil {
		return nil, err
	}
	return traits, nil
}

// checkProductNames returns the product names of providers of a tree, printable and of limited
// length, nil if there are none. They are only shown, so what cannot be used is omitted: it is no
// reason to reject the tree.
func checkProductNames(tree *providertree.Tree, names map[string]string, capabilities []string) map[string]string {
	if len(names) == 0 || !slices.Contains(capabilities, protocol.CapabilityProductNames) {
		return nil
	}
	out := map[string]string{}
	for provider, product := range names {
		if _, found := tree.ProviderByName(provider); !found {
			continue
		}
		if product = strings.TrimSpace(printable(product, maxProductName)); product != "" {
			out[provider] = product
		}
	}
	return out
}

// maxHypervisorType is enough for the type of a hypervisor in most scripts, in bytes; the protocol
// bounds characters.
const maxHypervisorType = 2 * protocol.MaxHypervisorType

// checkHypervisor returns the hypervisor of a node, printable and within bounds. It is only shown,
// so what cannot be used is omitted, as with product names.
func checkHypervisor(h *driverv1.Hypervisor, capabilities []string) plugins.Hypervisor {
	if h == nil || !slices.Contains(capabilities, protocol.CapabilityHypervisor) {
		return plugins.Hypervisor{}
	}
	out := plugins.Hypervisor{Type: strings.TrimSpace(printable(h.GetType(), maxHypervisorType)),
		Version: h.GetVersion()}
	if out.Version < 0 || out.Version > protocol.MaxHypervisorVersion {
		out.Version = 0
	}
	return out
}
