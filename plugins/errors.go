// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"errors"
	"fmt"
	"strings"
)

// What a driver may answer instead of a tree. Wrap them freely: errors.Is and errors.As are used on both sides, and the
// words around them arrive too.
var (
	// ErrReshapeNeeded says that inventory in use must move to another provider, and that the call came without allocations.
	ErrReshapeNeeded = errors.New("reshape needed")
	// ErrNotReady says that the driver cannot tell now, through no fault of its own. See [NotReady].
	ErrNotReady = errors.New("driver not ready")
	// ErrUnsupported says that the driver lacks this ability, altogether or with its present configuration. An agent gets it
	// too when it asks for something that the plugin did not announce. Asking again does not help until the configuration changes.
	ErrUnsupported = errors.New("not supported by this driver")
)

// ReshapeNeeded is [ErrReshapeNeeded] with a reason: what is to move where.
type ReshapeNeeded struct {
	Reason string
}

func (e *ReshapeNeeded) Error() string { return because(ErrReshapeNeeded, e.Reason) }

// Is makes errors.Is(err, ErrReshapeNeeded) hold.
func (e *ReshapeNeeded) Is(target error) bool { return target == ErrReshapeNeeded }

// NotReady is [ErrNotReady] with a reason: what is missing, and if possible how to mend it.
type NotReady struct {
	Reason string
}

func (e *NotReady) Error() string { return because(ErrNotReady, e.Reason) }

// Is makes errors.Is(err, ErrNotReady) hold.
func (e *NotReady) Is(target error) bool { return target == ErrNotReady }

func because(err error, reason string) string {
	if reason == "" {
		return err.Error()
	}
	return err.Error() + ": " + reason
}

// ReshapeFailed says that allocations cannot be moved to where the inventory went. Nothing was changed; an operator must
// look at the offenders.
type ReshapeFailed struct {
	Reason    string
	Offenders []Offender
	// Remedy is what can be done about all of them. It is told once.
	Remedy string
}

// Offender is one thing that stands against a reshape. Any of its fields may be empty.
type Offender struct {
	// Consumer and Provider are uuids.
	Consumer, Provider string
	// Class is a resource class.
	Class string
	// Problem is in words. Those of whom the same words are said are told together, so it is best without what the other fields say.
	Problem string
	// Remedy is what can be done about it. It is told once for all that have the same.
	Remedy string
}

func (e *ReshapeFailed) Error() string {
	const shown = 5
	var b strings.Builder
	b.WriteString("reshape failed")
	if e.Reason != "" {
		b.WriteString(": " + e.Reason)
	}
	for i, o := range e.Offenders {
		if i == shown {
			fmt.Fprintf(&b, "; and %d more", len(e.Offenders)-shown)
			break
		}
		b.WriteString("; " + o.String())
	}
	return b.String()
}

// String is the offender in words.
func (o Offender) String() string {
	var parts []string
	for _, p := range []struct{ kind, value string }{{"consumer", o.Consumer}, {"resource provider", o.Provider}, {"resource class", o.Class}} {
		if p.value != "" {
			parts = append(parts, p.kind+" "+p.value)
		}
	}
	if o.Problem == "" {
		return strings.Join(parts, ", ")
	}
	if len(parts) == 0 {
		return o.Problem
	}
	return strings.Join(parts, ", ") + ": " + o.Problem
}

// ConfigError says what is wrong with the configuration.
type ConfigError struct {
	// Key is the path of the key below the driver's table ("nodes[0].name"), or "" if it is about the whole.
	Key string
	// Problem is in words: what is wrong and what would be right.
	Problem string
	// More is what else is wrong. See [JoinConfig].
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

// All is everything that is wrong: the error itself first, and then what else; none of these has more.
func (e *ConfigError) All() []ConfigError {
	out := []ConfigError{{Key: e.Key, Problem: e.Problem}}
	for i := range e.More {
		out = append(out, e.More[i].All()...)
	}
	return out
}

// JoinConfig makes one [*ConfigError] of errors about different parts of a configuration, so that they can be mended together, in their order. Nil ones
// are left out; it is nil if all are. What is no [*ConfigError] is one about the whole.
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
