// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/compute-agent/compute-agent/providertree"
)

// Renamer is implemented by drivers whose reshape renames a resource class: a custom class that
// became a standard one, or pinned CPUs that were counted in VCPU and are now counted in PCPU.
//
// The agent checks after a reshape that every consumer has as much of every class as before. It
// cannot distinguish a renamed class from a lost and an invented one unless the rename is declared.
type Renamer interface {
	// ClassRenames maps each former name to the current one. It is called right after an
	// UpdateProviderTree with allocations, or a migration of a [LayoutVersioner], and describes
	// that one; it must not block. See [ClassRenames] for what is allowed.
	ClassRenames() map[string]string
}

// ClassRenames maps former names of resource classes to current ones, as a [Renamer] declares them.
type ClassRenames map[string]string

// Validate reports every invalid rename: to itself, to a class that is renamed too, of an invalid
// name.
func (r ClassRenames) Validate() error {
	var errs []error
	for _, from := range slices.Sorted(maps.Keys(r)) {
		to := r[from]
		_, again := r[to]
		err := errors.Join(providertree.ValidateClass(from), providertree.ValidateClass(to))
		switch {
		case err != nil:
		case from == to:
			err = fmt.Errorf("resource class %s is renamed to itself", from)
		case again:
			err = fmt.Errorf("resource class %s is renamed to %s, which is renamed too: declare the final name",
				from, to)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Present returns the current name of a class: its new one, or the same.
func (r ClassRenames) Present(class string) string {
	if to, renamed := r[class]; renamed {
		return to
	}
	return class
}

// Totals sums amounts by the current names of their classes, which a reshape must not change for
// any consumer.
func (r ClassRenames) Totals(amounts providertree.Resources) providertree.Resources {
	out := make(providertree.Resources, len(amounts))
	for class, n := range amounts {
		out.Add(providertree.Resources{r.Present(class): n})
	}
	return out
}
