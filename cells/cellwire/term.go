// SPDX-License-Identifier: Apache-2.0

package cellwire

import "context"

// HeaderTerm is the header of a change that only the active one of several compute APIs may make,
// with its term: a whole number that grows with each takeover. A cell refuses ([CodeOutdated]) what
// comes with a lower one than a change before. Without the header there is one compute API alone,
// or an older one.
const HeaderTerm = "X-Compute-Agent-Term"

type termKey struct{}

// WithTerm returns a context for changes with a term; 0: without one.
func WithTerm(ctx context.Context, term int64) context.Context {
	return context.WithValue(ctx, termKey{}, term)
}

// TermOf returns the term of a context; 0: it has no term.
func TermOf(ctx context.Context) int64 {
	term, _ := ctx.Value(termKey{}).(int64)
	return term
}
