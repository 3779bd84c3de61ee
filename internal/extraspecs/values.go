// SPDX-License-Identifier: Apache-2.0

package extraspecs

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Values are what the value of an extra spec or a property may be; without anything, any text.
type Values struct {
	// OneOf are the words that it may be.
	OneOf []string
	// Truth says that it is a truth value, in one of oslo's words.
	Truth bool
	// Number says that it is an integer from Least to Most.
	Number      bool
	Least, Most int64
}

func oneOf(words ...string) Values { return Values{OneOf: words} }

func between(least, most int64) Values { return Values{Number: true, Least: least, Most: most} }

func atLeast(least int64) Values { return between(least, math.MaxInt32) }

var truth = Values{Truth: true}

// problem returns what is wrong with a value, "" if it is valid.
func (v Values) problem(value string) string {
	switch {
	case len(v.OneOf) > 0 && !slices.Contains(v.OneOf, value):
		return "it must be " + orList(v.OneOf)
	case v.Truth:
		if _, is := parseTruth(value); !is {
			return "it must be true or false"
		}
	case v.Number:
		if _, err := v.number(value); err != nil {
			return err.Error()
		}
	}
	return ""
}

func (v Values) number(value string) (int64, error) {
	n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
	if err != nil || n < v.Least || n > v.Most {
		if v.Most == math.MaxInt32 {
			return 0, fmt.Errorf("it must be an integer of %d or more", v.Least)
		}
		return 0, fmt.Errorf("it must be an integer from %d to %d", v.Least, v.Most)
	}
	return n, nil
}

// orList is "a, b or c".
func orList(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// parseTruth reads a truth value as oslo's strutils.bool_from_string does.
func parseTruth(value string) (truth, is bool) {
	word := strings.ToLower(strings.TrimSpace(value))
	truth = slices.Contains(yes, word)
	return truth, truth || slices.Contains(no, word)
}

// ValueError says which extra spec or property has a value that means nothing.
type ValueError struct {
	// Image says that it is a property of an image.
	Image                bool
	Name, Value, Problem string
}

// Error names it and what it must be.
func (e *ValueError) Error() string {
	kind := "The extra spec %.255s=%.64s of the flavor"
	if e.Image {
		kind = "The property %.255s=%.64s of the image"
	}
	return fmt.Sprintf(kind+" is invalid: %s.", e.Name, e.Value, e.Problem)
}

// ConflictError says which extra specs and properties contradict each other, in Nova's words where
// Nova finds the same.
type ConflictError struct{ Message string }

func (e *ConflictError) Error() string { return e.Message }

func conflictf(format string, args ...any) error {
	return &ConflictError{fmt.Sprintf(format, args...)}
}
