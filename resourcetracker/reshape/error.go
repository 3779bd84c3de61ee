// SPDX-License-Identifier: Apache-2.0

package reshape

import (
	"strings"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// Error says that a reshape is needed, but must not or cannot be carried out. Nothing has moved. If
// Placement refused it, new providers may have been created, which are empty. Waiting does not
// help: an operator has to act.
type Error struct {
	// Problem is what is wrong, in one line.
	Problem string
	// Violations are all reasons why it must not be carried out.
	Violations []plugins.Violation
	// Hint says what to do, in addition to the hints of the violations.
	Hint string
	// Err is the cause, or nil.
	Err error

	// shownCause is a cause that the problem says already.
	shownCause error
	// held is what the violations hold, trees have the providers they hold it of, or would.
	held  providertree.Allocations
	trees []*providertree.Tree
}

// Error is all of it in one line: the problem, every violation, the ways out, nothing twice.
func (e *Error) Error() string {
	parts := []string{e.Summary()}
	for _, v := range e.ViolationGroups() {
		parts = append(parts, v.String())
	}
	if ways := e.Hints(); ways != "" {
		parts = append(parts, "what to do: "+ways)
	}
	return strings.Join(parts, "; ")
}

// Summary is the problem without violations and hint.
func (e *Error) Summary() string {
	if e.Err != nil {
		return e.Problem + ": " + e.Err.Error()
	}
	return e.Problem
}

func (e *Error) Unwrap() []error {
	var out []error
	for _, err := range []error{e.Err, e.shownCause} {
		if err != nil {
			out = append(out, err)
		}
	}
	return out
}

// CannotMove returns the Error for a driver's own refusal, err. It has all violations that failed
// lists; the text of err has only some. held and trees are the allocations and the providers that
// texts of violations name.
func CannotMove(
	failed *plugins.ReshapeFailed, err error, held providertree.Allocations, trees ...*providertree.Tree,
) *Error {
	problem := "the driver cannot move the allocations"
	if failed.Reason != "" {
		problem += ": " + failed.Reason
	}
	hint := failed.Hint
	if hint == "" {
		hint = "check for each consumer whether its guest still exists (`openstack resource provider allocation " +
			"show CONSUMER`); allocations of removed guests can be " +
			"deleted (`openstack resource provider allocation delete CONSUMER`)"
	}
	return &Error{Problem: problem, Violations: failed.Violations, shownCause: err,
		held: held, trees: trees, Hint: hint +
			". Or go back to the driver's former configuration or version"}
}
