// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"errors"
	"fmt"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hosttraits"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

const (
	kibPerMiB   = 1024
	mibPerGiB   = 1024
	bytesPerGiB = 1 << 30
)

// class is a resource class that the driver owns on the root.
type class struct {
	name     string
	total    int64
	reserved int64
	// reservedKey is the configuration key behind reserved.
	reservedKey string
	// ratio is the configured one, 0 if it is not for us to say; initial is for a class that Placement does not know yet.
	ratio, initial float64
}

// classes says how much of each class there is, in Placement's units: CPUs, MiB cut, GiB cut. What is reserved of the
// disk is rounded up, as in Nova.
func classes(f facts, c config) []class {
	return []class{
		{"VCPU", int64(len(f.cpus)), c.ReservedCPUs, "reserved_host_cpus", c.CPURatio, c.InitialCPURatio},
		{"MEMORY_MB", int64(f.memoryKiB / kibPerMiB), c.ReservedMemoryMB, "reserved_host_memory_mb", c.RAMRatio, c.InitialRAMRatio},
		{"DISK_GB", int64(f.disk.Bytes / bytesPerGiB), (c.ReservedDiskMB + mibPerGiB - 1) / mibPerGiB, "reserved_host_disk_mb", c.DiskRatio, c.InitialDiskRatio},
	}
}

// report edits the root of a node until it says what the facts say. It touches the classes and traits that the driver
// owns and no others, and changes nothing if called again.
func report(tree *providertree.Tree, root string, f facts, c config) error {
	var problems []error
	for _, cl := range classes(f, c) {
		if err := cl.report(tree, root); err != nil {
			problems = append(problems, err)
		}
	}
	if err := reportTraits(tree, root, f.traits()); err != nil {
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

func (cl class) report(tree *providertree.Tree, root string) error {
	if cl.total == 0 {
		_, err := tree.RemoveInventory(root, cl.name)
		return err
	}
	if cl.reserved > cl.total {
		return &plugins.ConfigError{Key: cl.reservedKey, Problem: fmt.Sprintf("reserves %d of %s, but the host has only %d", cl.reserved, cl.name, cl.total)}
	}
	old, known := tree.Inventory(root, cl.name)
	_, err := tree.SetInventory(root, cl.name, providertree.Inventory{
		Total: cl.total, Reserved: cl.reserved, MinUnit: 1, MaxUnit: cl.total, StepSize: 1, AllocationRatio: cl.chooseRatio(old, known),
	})
	if err != nil {
		return fmt.Errorf("inventory of %s: %w", cl.name, err)
	}
	return nil
}

// chooseRatio is Nova's rule: what the configuration says; else what Placement has, so that an administrator's change
// survives; else the initial ratio.
func (cl class) chooseRatio(old providertree.Inventory, known bool) float64 {
	switch {
	case cl.ratio != 0:
		return cl.ratio
	case known:
		return old.AllocationRatio
	}
	return cl.initial
}

// reportTraits adds the host's traits and removes those of the driver's that the host does not have (any more).
func reportTraits(tree *providertree.Tree, root string, present []string) error {
	is := make(map[string]bool, len(present))
	for _, t := range present {
		is[t] = true
	}
	var absent []string
	for _, t := range hosttraits.Owned() {
		if !is[t] {
			absent = append(absent, t)
		}
	}
	if _, err := tree.AddTraits(root, present...); err != nil {
		return fmt.Errorf("traits: %w", err)
	}
	if _, err := tree.RemoveTraits(root, absent...); err != nil {
		return fmt.Errorf("traits: %w", err)
	}
	return nil
}
