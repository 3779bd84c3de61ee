// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/compute-agent/compute-agent/internal/jsonkit"
)

// Query has the parameters of a query string, in their order.
type Query []QueryValue

// QueryValue is one parameter of a query string.
type QueryValue struct{ Key, Value string }

// QueryError is why a query string is refused: a 400, with a code from 1.23 on.
type QueryError struct {
	// Code is "" for CodeUndefined.
	Code ErrorCode
	// Message is a whole sentence.
	Message string
}

// Error is the message.
func (e *QueryError) Error() string { return e.Message }

// BadQuery is a QueryError without a code of its own.
func BadQuery(format string, args ...any) *QueryError {
	return &QueryError{Message: fmt.Sprintf(format, args...)}
}

// maxParameters bounds the parameters of a query. A request for candidates with 64 granular groups
// has 300.
const maxParameters = 2000

// ReadQuery reads a query string as Placement's framework does: parameters are separated by & or ;,
// a key can have no value, + is a space, and a % without two hexadecimal digits is a % sign. All
// must be UTF-8. The error is a *QueryError.
func ReadQuery(raw string) (Query, error) {
	if raw == "" {
		return nil, nil
	}
	all := make(Query, 0, 1+strings.Count(raw, "&"))
	for raw != "" {
		part := raw
		if end := strings.IndexAny(raw, "&;"); end >= 0 {
			part, raw = raw[:end], raw[end+1:]
		} else {
			raw = ""
		}
		if part == "" {
			continue
		}
		key, value, _ := strings.Cut(part, "=")
		p := QueryValue{unquote(key), unquote(value)}
		if !utf8.ValidString(p.Key) || !utf8.ValidString(p.Value) {
			return nil, BadQuery("Invalid query string parameters: %s is not in UTF-8.", jsonkit.Shortened(part))
		}
		if all = append(all, p); len(all) > maxParameters {
			return nil, BadQuery("Invalid query string parameters: there are more than %d of them.", maxParameters)
		}
	}
	return all, nil
}

// unquote undoes the quoting of a key or a value.
func unquote(s string) string {
	if strings.IndexByte(s, '%') < 0 && strings.IndexByte(s, '+') < 0 {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '+':
			b = append(b, ' ')
		case c == '%' && i+2 < len(s) && unhex(s[i+1]) >= 0 && unhex(s[i+2]) >= 0:
			b = append(b, byte(unhex(s[i+1])<<4|unhex(s[i+2])))
			i += 2
		default:
			b = append(b, c)
		}
	}
	return string(b)
}

func unhex(c byte) int {
	switch {
	case c >= '0' && c <= '9':
		return int(c - '0')
	case c >= 'a' && c <= 'f':
		return int(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// Last is the value of the last parameter of that key, which is used if a key can be given only
// once.
func (q Query) Last(key string) (value string, ok bool) {
	for i := len(q) - 1; i >= 0; i-- {
		if q[i].Key == key {
			return q[i].Value, true
		}
	}
	return "", false
}

// All are the values of the parameters of that key.
func (q Query) All(key string) []string {
	var values []string
	for i := range q {
		if q[i].Key == key {
			values = append(values, q[i].Value)
		}
	}
	return values
}

// Origin is what introduced a parameter of a call: a microversion, or an extension.
type Origin struct {
	// Since is the feature that introduced it; none for a parameter that is as old as the call, and
	// for an extension, which an operator may grant to clients of older microversions.
	Since Feature
	// Extension is one of Extensions, or "".
	Extension string
}

// Parameter declares a parameter of a call.
type Parameter struct {
	Name string
	Origin
	// Text is for the reference.
	Text string
	// Required says that a request must have the parameter. Repeated is the feature from which on a
	// request may have it several times; before that, the last one counts or several are refused.
	Required bool
	Repeated Feature
	// Grouped parameters can have the suffix of a request group.
	Grouped bool
}

// The texts of parameters that several calls have.
const (
	TextResources = "CLASS:AMOUNT,…: those that can allocate all of it at once."
	TextRequired  = "TRAIT,!TRAIT,…: those that have the traits, and from 1.22 on not those with `!`. From 1.39 on, " +
		"in:TRAIT,TRAIT: any of them."
	TextMemberOf = "UUID or in:UUID,UUID: those in (any of) the aggregates. From 1.32 on, !UUID or !in:UUID,UUID: " +
		"those in none of them."
)

// ExistsAt reports whether the parameter exists at a version, for a client that gets the
// extensions.
func (o Origin) ExistsAt(v Version, ext func() ExtensionSet) bool {
	return v.Has(o.Since) && (o.Extension == "" || ext().Has(o.Extension))
}

// UnknownParameter is the error for a parameter that the call does not have at this version.
func UnknownParameter(key string, o Origin, v Version) *QueryError {
	if o.Extension != "" {
		return BadQuery(
			"Invalid query string parameters: %q is an extension: it needs microversion %s or later and the header "+
				"%s: %[4]s, or [placement] extensions = [%[4]q] in the configuration of the server.",
			key, Version(RequestedExtensions), HeaderExtensions, o.Extension)
	}
	return BadQuery("Invalid query string parameters: %q is not a parameter of this call at microversion %s.",
		jsonkit.Shortened(key), v)
}
