// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/compute-agent/compute-agent/providertree"
)

// Renamer is implemented by drivers whose reshape calls a resource class by another name: a custom class that became a
// standard one, or guests with CPUs of their own that were counted in VCPU and are counted in PCPU now.
//
// The agent checks after a reshape that every consumer holds of every class what it held before. It cannot tell a renamed
// class from one that was lost and another that was invented, unless the rename is declared.
type Renamer interface {
	// ClassRenames maps each former name to the present one. It is called right after an UpdateProviderTree that was given
	// allocations, or a step of a [Shaper], and speaks of that one; it must not block. See [ClassRenames] for what is allowed.
	ClassRenames() map[string]string
}

// ClassRenames is resource classes by their former names, as a [Renamer] declares them.
type ClassRenames map[string]string

// Validate reports every rename that cannot be: to itself, to a class that is renamed too, of a name that is none.
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
			err = fmt.Errorf("resource class %s is renamed to %s, which is renamed too: declare what it becomes in the end", from, to)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Present is the present name of a class: its new one, or the same.
func (r ClassRenames) Present(class string) string {
	if to, renamed := r[class]; renamed {
		return to
	}
	return class
}

// Totals sums amounts by the present names of their classes: what a reshape must not change for any consumer.
func (r ClassRenames) Totals(amounts providertree.Resources) providertree.Resources {
	out := make(providertree.Resources, len(amounts))
	for class, n := range amounts {
		out.Add(providertree.Resources{r.Present(class): n})
	}
	return out
}
