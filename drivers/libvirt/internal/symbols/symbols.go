// SPDX-License-Identifier: Apache-2.0

// Package symbols makes names of resource classes and traits out of what operators write, as Nova does, so that a tree that Nova wrote
// needs no change. It knows the standard names, because only they stay as they are.
package symbols

import (
	_ "embed" // the lists of standard names
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/compute-agent/compute-agent/providertree"
)

const custom = providertree.CustomPrefix

//go:embed data/resource_classes.txt
var classesText string

//go:embed data/traits.txt
var traitsText string

var (
	classes = sync.OnceValue(func() map[string]bool { return set(classesText) })
	traits  = sync.OnceValue(func() map[string]bool { return set(traitsText) })
)

func set(text string) map[string]bool {
	names := map[string]bool{}
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
			names[line] = true
		}
	}
	return names
}

// StandardTrait says whether os-traits has this trait.
func StandardTrait(name string) bool { return traits()[name] }

var foreign = regexp.MustCompile(`[^0-9A-Z]+`)

// Custom is the custom resource class or trait for a name: CUSTOM_NVIDIA_222 for nvidia-222. It may be too long.
func Custom(name string) string {
	return custom + foreign.ReplaceAllString(strings.ToUpper(name), "_")
}

// Class is the resource class that a name stands for: a standard or a custom one in any case as it is, all else made a custom one.
func Class(name string) (string, error) {
	name = strings.ToUpper(strings.TrimSpace(name))
	if !classes()[name] && !strings.HasPrefix(name, custom) {
		name = Custom(name)
	}
	return name, providertree.ValidateClass(name)
}

// Trait is the trait that a name stands for: a standard one as it is, a custom one in any case, all else made a custom one. Standard
// traits count in capitals only, as in Nova.
func Trait(name string) (string, error) {
	name = strings.TrimSpace(name)
	switch upper := strings.ToUpper(name); {
	case traits()[name]:
	case strings.HasPrefix(upper, custom):
		name = upper
	default:
		name = Custom(name)
	}
	return name, providertree.ValidateTrait(name)
}

// Traits are those that the names stand for, sorted, each once. Empty names are passed over.
func Traits(names []string) ([]string, error) {
	var out []string
	for _, name := range names {
		if strings.TrimSpace(name) == "" {
			continue
		}
		t, err := Trait(name)
		if err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}
