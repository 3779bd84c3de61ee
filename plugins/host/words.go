// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"
	"slices"

	"github.com/compute-agent/compute-agent/internal/textutil"
	"github.com/compute-agent/compute-agent/plugins/internal/protocol"
)

// words makes what a plugin sends one printable line of at most size bytes: an escape sequence would
// reach the operator's terminal, a line feed would forge a record of the log.
func words(s string, size int) string { return textutil.Sanitize(s, size) }

// sanitizeFailure makes a driver's error printable, and bounds its lists.
func sanitizeFailure(f protocol.Failure) protocol.Failure {
	const most, short, more, offenders = 20_000, 600, 51, 501 // the SDK sends 500, and how many more there are
	f.Message, f.Words = words(f.Message, most), words(f.Words, most)
	f.Key, f.UUID, f.Remedy = words(f.Key, short), words(f.UUID, short), words(f.Remedy, most)
	f.More = slices.Clone(f.More[:min(len(f.More), more)])
	for i, p := range f.More {
		f.More[i] = protocol.KeyProblem{Key: words(p.Key, short), Problem: words(p.Problem, short)}
	}
	rest := len(f.Offenders) - offenders
	f.Offenders = slices.Clone(f.Offenders[:min(len(f.Offenders), offenders)])
	for i, o := range f.Offenders {
		f.Offenders[i] = protocol.Offender{
			Consumer: words(o.Consumer, short), Provider: words(o.Provider, short), Class: words(o.Class, short), Problem: words(o.Problem, short), Remedy: words(o.Remedy, short),
		}
	}
	if rest > 0 {
		f.Offenders = append(f.Offenders, protocol.Offender{Problem: fmt.Sprintf("and %d more", rest)})
	}
	return f
}
