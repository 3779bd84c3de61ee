// SPDX-License-Identifier: Apache-2.0

package selection

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
	"github.com/compute-agent/compute-agent/internal/extraspecs"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// Persistent memory is given to guests, in whole namespaces that an operator named:
// CUSTOM_PMEM_NAMESPACE_<label> on the root, one unit a namespace. The option is Nova's
// [libvirt]pmem_namespaces.
//
//	/sys/bus/nd ─▶ discovery.ReadPMEM ─┐
//	configuration ─▶ ParsePMEM ─▶ PMEMLabels ┴▶ Choose ─▶ []PMEMPool
//
// A guest gets a namespace by its character device (/dev/dax0.0), so a namespace counts only in the
// mode that has one, devdax, and with the driver that serves it. Nova does not start when a
// configured namespace is missing. Here it is left out with a discrepancy: one broken module
// removes its own namespaces from the inventory, not the host.

// PMEMPool are the namespaces of a class that guests can have.
type PMEMPool struct {
	// Class is CUSTOM_PMEM_NAMESPACE_<label>.
	Class string
	// Namespaces are one or more, in the order of the configuration.
	Namespaces []machine.Namespace
}

// PMEMTotals are the inventories: the number of namespaces by class.
func PMEMTotals(pools []PMEMPool) map[string]int64 {
	totals := make(map[string]int64, len(pools))
	for _, p := range pools {
		totals[p.Class] = int64(len(p.Namespaces))
	}
	return totals
}

// Choose finds the configured namespaces among those that there are. A configured one that is
// missing or unusable is left out, with a discrepancy; a class without any is left out. The result
// is in the order of the classes.
//
// Cost: O(configured + found).
func (l PMEMLabels) Choose(found []machine.Namespace) ([]PMEMPool, []machine.Discrepancy) {
	byName := make(map[string][]machine.Namespace, len(found))
	for _, n := range found {
		if n.Label != "" {
			byName[n.Label] = append(byName[n.Label], n)
		}
	}
	var pools []PMEMPool
	var discrepancies []machine.Discrepancy
	for _, class := range l.classes {
		pool := PMEMPool{Class: class}
		for _, name := range l.names[class] {
			n, discrepancy := pickNamespace(name, byName[name])
			if discrepancy != nil {
				discrepancies = append(discrepancies, *discrepancy)
			}
			if n != nil {
				pool.Namespaces = append(pool.Namespaces, *n)
			}
		}
		if len(pool.Namespaces) > 0 {
			pools = append(pools, pool)
		}
	}
	return pools, discrepancies
}

// pickNamespace is the namespace that a name stands for, or nil, and what is wrong with it.
func pickNamespace(name string, candidates []machine.Namespace) (*machine.Namespace, *machine.Discrepancy) {
	discrepancy := func(format string, args ...any) *machine.Discrepancy {
		d := machine.Discrepancyf("pmem-"+name, "%s: namespace %q "+format,
			append([]any{PMEMNamespacesKey, name}, args...)...)
		return &d
	}
	if len(candidates) == 0 {
		return nil, discrepancy(
			"is not on this host and is not reported. Compare with the names that `ndctl list --idle` shows")
	}
	for i, n := range candidates {
		if useless(n) == "" {
			if len(candidates) > 1 {
				return &candidates[i],
					discrepancy("is the name of %d namespaces: only %s is reported. Give them unique names",
						len(candidates), n.Name)
			}
			return &candidates[i], nil
		}
	}
	n := candidates[0]
	return nil, discrepancy("(%s) %s", n.Name, useless(n))
}

// ndctl is the operator's word.
func ndctl(m machine.Mode) string {
	switch m {
	case machine.ModeSafe:
		return "sector"
	case machine.ModeMemory:
		return "fsdax"
	case machine.ModeDAX:
		return "devdax"
	}
	return string(m)
}

// daxDriver is the driver of character devices.
const daxDriver = "device_dax"

// useless is why a guest cannot have the namespace, or "".
func useless(n machine.Namespace) string {
	switch {
	case n.Mode != machine.ModeDAX:
		return "is in mode " + ndctl(n.Mode) +
			", not devdax, and is not reported. Recreate it with `ndctl create-namespace --mode=devdax`, which " +
			"loses its data"
	case n.Device == "":
		return "has no character device and is not reported. Enable it with `ndctl enable-namespace`"
	case n.Driver == "":
		return "has " + n.Device + ", which has no driver, and is not reported. Enable it with `daxctl enable-device`"
	case n.Driver != daxDriver:
		return "has " + n.Device + ", which is the host's own (driver " + n.Driver +
			"), and is not reported. Give it back with `daxctl reconfigure-device --mode=devdax`"
	}
	return ""
}

// PMEMNamespacesKey is the name of the configuration's key, which is Nova's.
const PMEMNamespacesKey = "pmem_namespaces"

// pmemClassPrefix is followed by the label.
const pmemClassPrefix = "PMEM_NAMESPACE_"

// PMEMPrefix begins the resource classes of persistent memory.
const PMEMPrefix = "CUSTOM_" + pmemClassPrefix

// PMEMConfig are the keys about persistent memory in the driver's configuration.
type PMEMConfig struct {
	// PMEMNamespaces are a label and names of namespaces each: "SMALL:ns0|ns1". A label may come
	// several times.
	PMEMNamespaces []string `json:"pmem_namespaces"`
}

// PMEMLabels are the parsed configuration.
type PMEMLabels struct {
	// names are the namespaces of a class, in the order of the configuration.
	names   map[string][]string
	classes []string
}

// Bounds of the configuration.
const (
	// maxPMEMNames is more than any host has.
	maxPMEMNames = 4096
)

// Configured reports whether namespaces are configured; otherwise they need not be read.
func (l PMEMLabels) Configured() bool { return len(l.classes) > 0 }

// ParsePMEM reads the configuration, as far as that is possible without a host. Errors are
// [*plugins.ConfigError].
func ParsePMEM(c PMEMConfig) (PMEMLabels, error) {
	l := PMEMLabels{names: map[string][]string{}}
	seen := map[string]bool{}
	for i, text := range c.PMEMNamespaces {
		class, names, err := parsePMEMEntry(text)
		if err == nil {
			err = takeNamespaces(names, seen)
		}
		if err != nil {
			return PMEMLabels{},
				&plugins.ConfigError{Key: fmt.Sprintf("%s[%d]", PMEMNamespacesKey, i), Problem: err.Error()}
		}
		if l.names[class] == nil {
			l.classes = append(l.classes, class)
		}
		l.names[class] = append(l.names[class], names...)
	}
	if len(seen) > maxPMEMNames {
		return PMEMLabels{}, &plugins.ConfigError{Key: PMEMNamespacesKey,
			Problem: fmt.Sprintf("has %d namespaces; the limit is %d", len(seen), maxPMEMNames)}
	}
	slices.Sort(l.classes)
	return l, nil
}

// takeNamespaces notes the names, each of which can come once in the whole configuration.
func takeNamespaces(names []string, seen map[string]bool) error {
	for _, name := range names {
		if seen[name] {
			return fmt.Errorf("namespace %q is in the list already", name)
		}
		seen[name] = true
	}
	return nil
}

// parsePMEMEntry reads a label and names.
func parsePMEMEntry(text string) (class string, names []string, err error) {
	label, list, found := strings.Cut(strings.TrimSpace(text), ":")
	if !found {
		return "", nil, fmt.Errorf("%.60q is not a label with names of namespaces, such as \"SMALL:ns0|ns1\"", text)
	}
	if class, err = pmemClass(label); err != nil {
		return "", nil, err
	}
	names = strings.Split(list, "|")
	for _, name := range names {
		if err := checkPMEMName(name); err != nil {
			return "", nil, err
		}
	}
	return class, names, nil
}

// pmemClass is the resource class of a label.
func pmemClass(label string) (string, error) {
	if strings.ContainsFunc(label, func(r rune) bool { return r < ' ' || r > '~' }) ||
		!strings.ContainsFunc(label, alphanumeric) {
		return "", fmt.Errorf("%.60q is not a label such as SMALL or 128G (ASCII, with a letter or a digit)", label)
	}
	class := extraspecs.CustomName(pmemClassPrefix + label)
	if err := providertree.ValidateClass(class); err != nil {
		return "", fmt.Errorf("label %.60q: %w", label, err)
	}
	return class, nil
}

func alphanumeric(r rune) bool {
	return r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z'
}

// checkPMEMName refuses names that the kernel does not accept, and those that are probably
// mistakes.
func checkPMEMName(name string) error {
	switch {
	case name == "":
		return errors.New("has an empty name of a namespace")
	case len(name) > machine.MaxPMEMLabel:
		return fmt.Errorf("%.60q... is not a namespace name: it has %d bytes; the limit is %d",
			name, len(name), machine.MaxPMEMLabel)
	case strings.TrimSpace(name) != name:
		return fmt.Errorf("%q is not a namespace name: there is space around it", name)
	case strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return fmt.Errorf("%q is not a namespace name: it has a control character", name)
	case strings.Contains(name, ","):
		return fmt.Errorf("%q has a comma: write each label with its namespaces as a separate list element", name)
	}
	return nil
}
