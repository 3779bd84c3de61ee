// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"errors"
	"fmt"
	"strings"
)

// Errors that a driver can return. They can be wrapped: errors.Is and errors.As are used on both
// sides, and the whole message is transmitted.
var (
	// ErrReshapeNeeded says that inventory in use must move to another provider, and the call had
	// no allocations.
	ErrReshapeNeeded = errors.New("reshape needed")
	// ErrNotReady says that the driver does not know now, without a fault of its own. See
	// [NotReady].
	ErrNotReady = errors.New("driver not ready")
	// ErrUnsupported says that the driver lacks a capability, in general or with its current
	// configuration. An agent gets it also when it calls a method that the plugin did not announce.
	// A retry does not help until the configuration changes.
	ErrUnsupported = errors.New("not supported by this driver")
)

// ReshapeNeeded is [ErrReshapeNeeded] with a reason: what moves where.
type ReshapeNeeded struct {
	Reason string
}

func (r *ReshapeNeeded) Error() string { return withCause(ErrReshapeNeeded, r.Reason) }

// Is makes errors.Is(err, ErrReshapeNeeded) hold.
func (r *ReshapeNeeded) Is(target error) bool { return target == ErrReshapeNeeded }

// NotReady is [ErrNotReady] with a reason: what is missing, and if possible how to fix it.
type NotReady struct {
	Reason string
}

func (n *NotReady) Error() string { return withCause(ErrNotReady, n.Reason) }

// Is makes errors.Is(err, ErrNotReady) hold.
func (n *NotReady) Is(target error) bool { return target == ErrNotReady }

func withCause(err error, reason string) string {
	if reason == "" {
		return err.Error()
	}
	return err.Error() + ": " + reason
}

// ReshapeFailed says that allocations cannot be moved to where the inventory moves. Nothing was
// changed; an operator must fix the violations.
type ReshapeFailed struct {
	Reason     string
	Violations []Violation
	// Hint is a hint that applies to all of them. It is shown once.
	Hint string
}

// Violation is one violation that prevents a reshape. Any of its fields can be empty.
type Violation struct {
	// Consumer and Provider are uuids.
	Consumer, Provider string
	// Class is a resource class.
	Class string
	// Problem describes the violation. It does not repeat the other fields, because violations with
	// the same text are shown together.
	Problem string
	// Hint says how to fix it. Violations with the same hint show it once.
	Hint string
}

func (r *ReshapeFailed) Error() string {
	const shown = 5
	var b strings.Builder
	b.WriteString("reshape failed")
	if r.Reason != "" {
		b.WriteString(": " + r.Reason)
	}
	for i, v := range r.Violations {
		if i == shown {
			fmt.Fprintf(&b, "; and %d more", len(r.Violations)-shown)
			break
		}
		b.WriteString("; " + v.String())
	}
	return b.String()
}

// String describes the violation.
func (v Violation) String() string {
	var parts []string
	for _, p := range []struct{ kind, value string }{{"consumer", v.Consumer}, {"resource provider", v.Provider},
		{"resource class", v.Class}} {
		if p.value != "" {
			parts = append(parts, p.kind+" "+p.value)
		}
	}
	if v.Problem == "" {
		return strings.Join(parts, ", ")
	}
	if len(parts) == 0 {
		return v.Problem
	}
	return strings.Join(parts, ", ") + ": " + v.Problem
}

// ConfigError says what is wrong with the configuration.
type ConfigError struct {
	// Key is the path of the key below the driver's table ("nodes[0].name"), or "" for the whole
	// table.
	Key string
	// Problem says what is wrong and what is valid.
	Problem string
	// More are further problems. See [JoinConfig].
	More []ConfigError
}

func (e *ConfigError) Error() string {
	all := e.All()
	parts := make([]string, 0, len(all))
	for _, one := range all {
		if one.Key == "" {
			parts = append(parts, one.Problem)
		} else {
			parts = append(parts, one.Key+": "+one.Problem)
		}
	}
	return "configuration: " + strings.Join(parts, "; ")
}

// All returns all problems: the error itself first, then those in More; none of the results has
// More.
func (e *ConfigError) All() []ConfigError {
	out := []ConfigError{{Key: e.Key, Problem: e.Problem}}
	for i := range e.More {
		out = append(out, e.More[i].All()...)
	}
	return out
}

// JoinConfig joins errors about different parts of a configuration to one [*ConfigError], in their
// order, so that they can be fixed together. It skips nil errors and returns nil if all are. An
// error that is not a [*ConfigError] counts as one about the whole table.
func JoinConfig(errs ...error) error {
	var all []ConfigError
	for _, err := range errs {
		var one *ConfigError
		switch {
		case err == nil:
		case errors.As(err, &one):
			all = append(all, one.All()...)
		default:
			all = append(all, ConfigError{Problem: err.Error()})
		}
	}
	if len(all) == 0 {
		return nil
	}
	all[0].More = all[1:]
	if len(all) == 1 {
		all[0].More = nil
	}
	return &all[0]
}
