// SPDX-License-Identifier: Apache-2.0

package driverclient

import (
	"fmt"
	"slices"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
	"github.com/compute-agent/compute-agent/plugins/proto/protocol"
)

// printable makes text from a plugin one printable line of at most size bytes: an escape sequence
// would reach the operator's terminal, a line feed would forge a log line.
func printable(s string, size int) string { return textutil.Sanitize(s, size) }

// sanitizeFailure makes a driver's error printable, and bounds its lists.
func sanitizeFailure(f protocol.Failure) protocol.Failure {
	const most, short, more, violations = 20_000, 600, 51, 501 // the SDK sends 500, and one for how many more there are
	f.Message, f.Words = printable(f.Message, most), printable(f.Words, most)
	f.Key, f.UUID, f.Hint = printable(f.Key, short), printable(f.UUID, short), printable(f.Hint, most)
	f.More = slices.Clone(f.More[:min(len(f.More), more)])
	for i, p := range f.More {
		f.More[i] = protocol.KeyProblem{Key: printable(p.Key, short), Problem: printable(p.Problem, short)}
	}
	rest := len(f.Violations) - violations
	f.Violations = slices.Clone(f.Violations[:min(len(f.Violations), violations)])
	for i, o := range f.Violations {
		f.Violations[i] = protocol.Violation{
			Consumer: printable(o.Consumer, short),
			Provider: printable(o.Provider, short),
			Class:    printable(o.Class, short),
			Problem:  printable(o.Problem, short),
			Hint:     printable(o.Hint, short),
		}
	}
	if rest > 0 {
		f.Violations = append(f.Violations, protocol.Violation{Problem: fmt.Sprintf("and %d more", rest)})
	}
	return f
}

// clip shortens text from a plugin to at most size bytes.
func clip(s string, size int) string { return textutil.Clip(s, size) }
