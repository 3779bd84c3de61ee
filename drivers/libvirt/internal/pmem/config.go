// SPDX-License-Identifier: Apache-2.0

package pmem

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/symbols"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// NamespacesKey is the name of the configuration's key, which is Nova's.
const NamespacesKey = "pmem_namespaces"

// classPrefix is followed by the label.
const classPrefix = "PMEM_NAMESPACE_"

// NamespacesConfig are the keys about persistent memory in the driver's configuration.
type NamespacesConfig struct {
	// PMEMNamespaces are a label and names of namespaces each: "SMALL:ns0|ns1". A label may come several times.
	PMEMNamespaces []string `json:"pmem_namespaces"`
}

// Labels are the parsed configuration.
type Labels struct {
	// names are the namespaces of a class, in the order of the configuration.
	names   map[string][]string
	classes []string
}

// Bounds of the configuration.
const (
	// maxName is the longest name that a namespace's label on the module has room for.
	maxName = 63
	// maxNames is more than any host has.
	maxNames = 4096
)

// Configured says whether there is anything to look for; without it nobody needs to read the namespaces.
func (l Labels) Configured() bool { return len(l.classes) > 0 }

// Parse reads the configuration, as far as it can be judged without a host. Errors are [*plugins.ConfigError].
func Parse(c NamespacesConfig) (Labels, error) {
	l := Labels{names: map[string][]string{}}
	seen := map[string]bool{}
	for i, text := range c.PMEMNamespaces {
		class, names, err := parseEntry(text)
		if err == nil {
			err = taken(names, seen)
		}
		if err != nil {
			return Labels{}, &plugins.ConfigError{Key: fmt.Sprintf("%s[%d]", NamespacesKey, i), Problem: err.Error()}
		}
		if l.names[class] == nil {
			l.classes = append(l.classes, class)
		}
		l.names[class] = append(l.names[class], names...)
	}
	if len(seen) > maxNames {
		return Labels{}, &plugins.ConfigError{Key: NamespacesKey, Problem: fmt.Sprintf("has %d namespaces, can have %d", len(seen), maxNames)}
	}
	slices.Sort(l.classes)
	return l, nil
}

// taken notes the names, each of which can come once in the whole configuration.
func taken(names []string, seen map[string]bool) error {
	for _, name := range names {
		if seen[name] {
			return fmt.Errorf("namespace %q is in the list already", name)
		}
		seen[name] = true
	}
	return nil
}

// parseEntry reads a label and names.
func parseEntry(text string) (class string, names []string, err error) {
	label, list, found := strings.Cut(strings.TrimSpace(text), ":")
	if !found {
		return "", nil, fmt.Errorf("%.60q is no label with names of namespaces, such as \"SMALL:ns0|ns1\"", text)
	}
	if class, err = classOf(label); err != nil {
		return "", nil, err
	}
	names = strings.Split(list, "|")
	for _, name := range names {
		if err := checkName(name); err != nil {
			return "", nil, err
		}
	}
	return class, names, nil
}

// classOf is the resource class of a label.
func classOf(label string) (string, error) {
	if strings.ContainsFunc(label, func(r rune) bool { return r < ' ' || r > '~' }) || !strings.ContainsFunc(label, alphanumeric) {
		return "", fmt.Errorf("%.60q is no label such as SMALL or 128G: ASCII, and with a letter or a digit", label)
	}
	class := symbols.Custom(classPrefix + label)
	if err := providertree.ValidateClass(class); err != nil {
		return "", fmt.Errorf("label %.60q: %w", label, err)
	}
	return class, nil
}

func alphanumeric(r rune) bool {
	return r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z'
}

// checkName refuses what can be no namespace's name, since the kernel would not have taken it, and what is hardly meant as one.
func checkName(name string) error {
	switch {
	case name == "":
		return errors.New("has an empty name of a namespace")
	case len(name) > maxName:
		return fmt.Errorf("%.60q... is no name of a namespace: it has %d bytes, can have %d", name, len(name), maxName)
	case strings.TrimSpace(name) != name:
		return fmt.Errorf("%q is no name of a namespace: there is space around it", name)
	case strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return fmt.Errorf("%q is no name of a namespace: there is a control character in it", name)
	case strings.Contains(name, ","):
		return fmt.Errorf("%q has a comma: write each label with its namespaces as a text of its own in the list", name)
	}
	return nil
}
