// SPDX-License-Identifier: Apache-2.0

package pluginhost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// optional is the faulty driver with the optional abilities that are about nodes. Its config maps
// an ability to its fault.
type optional struct {
	chaos
	wrong map[string]string
	last  int // the step that was made last, for ClassRenames
}

func (o *optional) Configure(_ context.Context, raw json.RawMessage, _ plugins.HostInfo) error {
	o.wrong = nil
	return plugins.DecodeConfig(raw, &o.wrong)
}

func (o *optional) UpdateProviderTree(
	_ context.Context, tree *providertree.Tree, node string, _ providertree.Allocations,
) (providertree.Allocations, error) {
	root, _ := tree.ProviderByName(node)
	_, err := tree.SetInventory(root.UUID, "VCPU", providertree.Inventory{Total: 8})
	return nil, err
}

func (o *optional) LayoutVersion() int {
	switch o.wrong["layout"] {
	case "none":
		return 0
	case "negative":
		return -1
	case "panic":
		panic("no idea")
	}
	return 3
}

func (o *optional) ClassRenames() map[string]string {
	if o.last == 2 {
		return map[string]string{"CUSTOM_A": "A"}
	}
	return nil
}

func (o *optional) Reshape(
	_ context.Context, tree *providertree.Tree, node string, from int, allocations providertree.Allocations,
) (providertree.Allocations, error) {
	root, _ := tree.ProviderByName(node)
	o.last = from
	switch o.wrong["step"] {
	case "hang":
		select {}
	case "crash":
		os.Exit(7)
	case "panic":
		panic("a defect of the driver")
	case "failed":
		return nil, &plugins.ReshapeFailed{Reason: "no capacity",
			Violations: []plugins.Violation{{Class: "VGPU", Problem: "too many"}}}
	case "no-root":
		_, err := tree.Remove(root.UUID)
		return nil, err
	}
	_, err := tree.AddTraits(root.UUID, fmt.Sprint("CUSTOM_STEP_", from))
	for _, c := range allocations {
		c.Resources[root.UUID]["VCPU"]++
	}
	return nil, err
}

func (o *optional) Capabilities(node string) map[string]bool {
	switch o.wrong["capabilities"] {
	case "none":
		return nil
	case "lower":
		return map[string]bool{"lower": true}
	case "status":
		return map[string]bool{"COMPUTE_STATUS_DISABLED": true}
	}
	return map[string]bool{"COMPUTE_NET_ATTACH_INTERFACE": true, "COMPUTE_RESCUE_BFV": false}
}

func (o *optional) ProductNames(node string) map[string]string {
	switch o.wrong["names"] {
	case "none":
		return nil
	case "hostile":
		return map[string]string{node: "Acme\x1b[2J\n9000" + strings.Repeat("x", 1<<20), "cn9": "of no provider"}
	}
	return map[string]string{node: "Acme 9000"}
}

func (o *optional) Hypervisor(string) plugins.Hypervisor {
	switch o.wrong["hypervisor"] {
	case "none":
		return plugins.Hypervisor{}
	case "hostile":
		return plugins.Hypervisor{Type: "Acme\x1b[2J\n" + strings.Repeat("x", 1<<20), Version: 1 << 40}
	}
	return plugins.Hypervisor{Type: "Acme", Version: 7002001}
}

func (o *optional) Guests(_ context.Context, tree *providertree.Tree, node string) ([]plugins.Guest, error) {
	root, _ := tree.ProviderByName(node)
	switch o.wrong["guests"] {
	case "not-ready":
		return nil, fmt.Errorf("listing: %w", &plugins.NotReady{Reason: "it sleeps"})
	case "unsupported":
		return nil, fmt.Errorf("this hypervisor: %w", plugins.ErrUnsupported)
	case "error":
		return nil, errors.New("half of the list was read")
	case "panic":
		panic("a defect of the driver")
	case "no-uuid":
		return []plugins.Guest{{UUID: "web-1", Name: "web"}}, nil
	case "many":
		guests := make([]plugins.Guest, 10_000)
		for i := range guests {
			id, _ := providertree.ChildUUID(root.UUID, fmt.Sprint(i))
			guests[i] = plugins.Guest{UUID: id,
				Resources: providertree.ProviderResources{root.UUID: {"VCPU": 1, "MEMORY_MB": 512, "DISK_GB": 1}}}
		}
		return guests, nil
	}
	return []plugins.Guest{
		{UUID: "AAAAAAAA22223333444455555555ABCD", Name: "web", ProjectID: "p", UserID: "u",
			Resources: providertree.ProviderResources{root.UUID: {"VCPU": 2}}},
		{UUID: rootUUID},
	}, nil
}

func (o *optional) NodeDeleted(_ context.Context, node plugins.Node) (bool, error) {
	if o.wrong["deleted"] == "error" {
		return true, errors.New("the manager does not answer")
	}
	return node.Name == "gone" && node.UUID == rootUUID, nil
}

var (
	_ plugins.LayoutVersioner    = (*optional)(nil)
	_ plugins.CapabilityReporter = (*optional)(nil)
	_ plugins.GuestLister        = (*optional)(nil)
	_ plugins.NodeChecker        = (*optional)(nil)
)
