// SPDX-License-Identifier: Apache-2.0

package extraspecs

import (
	_ "embed"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/compute-agent/compute-agent/providertree"
)

// Names of resource classes and traits are made of what operators write as Nova makes them, so that
// a tree that Nova wrote needs no change. The standard names are known, because only they stay as
// they are.

//go:embed data/resource_classes.txt
var classesText string

//go:embed data/traits.txt
var traitsText string

var (
	standardClasses = sync.OnceValue(func() map[string]bool { return nameSet(classesText) })
	standardTraits  = sync.OnceValue(func() map[string]bool { return nameSet(traitsText) })
)

func nameSet(text string) map[string]bool {
	names := map[string]bool{}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			names[line] = true
		}
	}
	return names
}

// StandardTrait reports whether os-traits has this trait.
func StandardTrait(name string) bool { return standardTraits()[name] }

var notInNames = regexp.MustCompile(`[^0-9A-Z]+`)

// CustomName is the custom resource class or trait for a name: CUSTOM_NVIDIA_222 for nvidia-222. It
// may be too long.
func CustomName(name string) string {
	return providertree.CustomPrefix + notInNames.ReplaceAllString(strings.ToUpper(name), "_")
}

// ClassName is the resource class that a name stands for: a standard or a custom one in any case as
// it is, all else made a custom one.
func ClassName(name string) (string, error) {
	name = strings.ToUpper(strings.TrimSpace(name))
	if !standardClasses()[name] && !strings.HasPrefix(name, providertree.CustomPrefix) {
		name = CustomName(name)
	}
	return name, providertree.ValidateClass(name)
}

// TraitName is the trait that a name stands for: a standard one as it is, a custom one in any case,
// all else made a custom one. Standard traits count in capitals only, as in Nova.
func TraitName(name string) (string, error) {
	name = strings.TrimSpace(name)
	switch upper := strings.ToUpper(name); {
	case standardTraits()[name]:
	case strings.HasPrefix(upper, providertree.CustomPrefix):
		name = upper
	default:
		name = CustomName(name)
	}
	return name, providertree.ValidateTrait(name)
}

// TraitNames returns the traits that the names stand for, sorted and without duplicates. It ignores
// empty names.
func TraitNames(names []string) ([]string, error) {
	var out []string
	for _, name := range names {
		if strings.TrimSpace(name) == "" {
			continue
		}
		t, err := TraitName(name)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}
