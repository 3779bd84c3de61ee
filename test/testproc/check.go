// SPDX-License-Identifier: Apache-2.0

package testproc

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// T is what Check needs of a test, a benchmark or a property.
type T interface {
	Helper()
	Fatal(args ...any)
}

// Check ends the test if there is an error.
func Check(t T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Checkf is Check that says what failed.
func Checkf(t T, err error, format string, args ...any) {
	t.Helper()
	if err != nil {
		t.Fatal(fmt.Sprintf(format, args...)+":", err)
	}
}

// Tried is what a function returned: a value or an error.
type Tried[V any] struct {
	value V
	err   error
}

// Try takes what a function returned, for Or: `file := testproc.Try(os.Open(name)).Or(t)`.
func Try[V any](value V, err error) Tried[V] { return Tried[V]{value, err} }

// Or returns the value, or ends the test with the error.
func (tr Tried[V]) Or(t T) V {
	t.Helper()
	Check(t, tr.err)
	return tr.value
}

// ErrorIs is ErrorIs of the error, whatever the value is.
func (tr Tried[V]) ErrorIs(t Running, want error, format string, args ...any) {
	t.Helper()
	ErrorIs(t, tr.err, want, format, args...)
}

// ErrorHas is ErrorHas of the error, whatever the value is.
func (tr Tried[V]) ErrorHas(t Running, part, format string, args ...any) {
	t.Helper()
	ErrorHas(t, tr.err, part, format, args...)
}

// Running is a test that goes on after a failure.
type Running interface {
	Helper()
	Error(args ...any)
}

// NoError fails the test if there is an error.
func NoError(t Running, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// NoErrorf is NoError that says what failed.
func NoErrorf(t Running, err error, format string, args ...any) {
	t.Helper()
	if err != nil {
		t.Error(fmt.Sprintf(format, args...)+":", err)
	}
}

// Same fails the test if there is a difference, as cmp.Diff(want, got) renders it.
func Same(t Running, diff string) {
	t.Helper()
	if diff != "" {
		t.Error("(-want +got):\n" + diff)
	}
}

// Samef is Same that says what differs.
func Samef(t Running, diff, format string, args ...any) {
	t.Helper()
	if diff != "" {
		t.Error(fmt.Sprintf(format, args...) + ":\n" + diff)
	}
}

// Equal fails the test if a value is not what it should be. The last verb of the format is for the
// value: `testproc.Equal(t, len(hosts), 2, "%s has %d hosts", cell)`.
func Equal[V comparable](t Running, got, want V, format string, args ...any) {
	t.Helper()
	if got != want {
		t.Error(about(format, args, got)+", want", fmt.Sprintf("%+v", want))
	}
}

// EqualList is Equal of lists.
func EqualList[L ~[]V, V comparable](t Running, got, want L, format string, args ...any) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Error(about(format, args, got)+", want", fmt.Sprintf("%+v", want))
	}
}

// Contains fails the test if a text has no such part. The last verb of the format is for the text.
func Contains(t Running, text, part, format string, args ...any) {
	t.Helper()
	if !strings.Contains(text, part) {
		t.Error(about(format, args, text) + fmt.Sprintf(", without %q", part))
	}
}

// ErrorIs fails the test if an error is another one. The last verb of the format is for the error.
func ErrorIs(t Running, err, want error, format string, args ...any) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Error(about(format, args, err)+", want", want)
	}
}

// ErrorHas fails the test if there is no error that says something. The last verb of the format is
// for the error.
func ErrorHas(t Running, err error, part, format string, args ...any) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), part) {
		t.Error(about(format, args, err) + fmt.Sprintf(", want one with %q", part))
	}
}

func about(format string, args []any, last any) string {
	return fmt.Sprintf(format, append(args, last)...)
}
