// SPDX-License-Identifier: Apache-2.0

package providertree

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Violation is one rule that is broken: of a provider, of allocations, or of the tree as a whole.
type Violation struct {
	// UUID and Name identify the provider, as they were given; "" if it is about no provider.
	UUID, Name string
	// Consumer is the uuid of the consumer whose allocations it is about, or "".
	Consumer string
	// Field is the field of the provider: uuid, name, parent, generation, inventories.CLASS or
	// inventories.CLASS.FIELD, traits, aggregates, resources; "" for the provider itself.
	Field string
	// Problem describes the value and, unless that is obvious, which values are allowed.
	Problem string
	// Hint says what to do about it; "" if the problem says all.
	Hint string

	kind error
}

// Error is the violation in one line that can be shown: where, what, hint.
func (v Violation) Error() string {
	var b strings.Builder
	switch {
	case v.Consumer != "":
		fmt.Fprintf(&b, "allocations of consumer %s: ", quoted(v.Consumer))
	case v.Name != "" || v.UUID != "":
		fmt.Fprintf(&b, "resource provider %q (%s): ", clip(v.Name), quoted(v.UUID))
	}
	b.WriteString(v.Problem)
	if v.Hint != "" {
		b.WriteString(": " + v.Hint)
	}
	return b.String()
}

// Unwrap returns [ErrInvalid], [ErrExists], [ErrParent] or [ErrStaleGeneration] if no tree can have
// the provider, otherwise nil.
func (v Violation) Unwrap() error { return v.kind }

// Violations are rules that are broken. As an error they list the first twenty.
type Violations []Violation

// Err is nil if there are none.
func (v Violations) Err() error {
	if len(v) == 0 {
		return nil
	}
	return v
}

// maxShown is how many violations one error lists: one cause often has many. maxViolations is about
// how many are collected of providers that no tree can hold.
const (
	maxShown      = 20
	maxViolations = 1000
)

// Error lists them in one line.
func (v Violations) Error() string {
	if len(v) == 1 {
		return v[0].Error()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d violations", len(v))
	if len(v) > maxShown {
		fmt.Fprintf(&b, ", the first %d of them", maxShown)
	}
	for i, one := range v[:min(len(v), maxShown)] {
		sep := "; "
		if i == 0 {
			sep = ": "
		}
		fmt.Fprintf(&b, "%s(%d) %v", sep, i+1, one)
	}
	return b.String()
}

// Is makes errors.Is find the errors that the violations wrap.
func (v Violations) Is(target error) bool {
	for _, one := range v {
		if one.kind != nil && errors.Is(one.kind, target) {
			return true
		}
	}
	return false
}

// In returns the violations of a field, with all below it.
func (v Violations) In(fields ...string) Violations {
	var out Violations
	for _, one := range v {
		for _, field := range fields {
			if one.Field == field || strings.HasPrefix(one.Field, field+".") {
				out = append(out, one)
				break
			}
		}
	}
	return out
}

// quoted makes a uuid, which may be anything, printable.
func quoted(s string) string {
	q := strconv.Quote(truncate(s, 64))
	return q[1 : len(q)-1]
}
