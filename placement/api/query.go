// SPDX-License-Identifier: Apache-2.0

package api

import (
	"strings"
	"unicode/utf8"

	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/placement/wire"
)

// parameters are the parameters of a query string, in their order.
type parameters []parameter

type parameter struct{ key, value string }

// maxParameters bounds the parameters of a query. A request for candidates with 64 granular groups
// has 300.
const maxParameters = 2000

// readQuery reads a query string as Placement's framework does: parameters are separated by & or ;,
// a key can have no value, + is a space, and a % without two hexadecimal digits is a % sign. All
// must be UTF-8.
func readQuery(raw string) (parameters, error) {
	if raw == "" {
		return nil, nil
	}
	all := make(parameters, 0, 1+strings.Count(raw, "&"))
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
		p := parameter{unquote(key), unquote(value)}
		if !utf8.ValidString(p.key) || !utf8.ValidString(p.value) {
			return nil, badRequest("Invalid query string parameters: %s is not in UTF-8.", shortened(part))
		}
		if all = append(all, p); len(all) > maxParameters {
			return nil, badRequest("Invalid query string parameters: there are more than %d of them.", maxParameters)
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

// last is the value of the last parameter of that key, which is used if a key can be given only
// once.
func (p parameters) last(key string) (value string, ok bool) {
	for i := len(p) - 1; i >= 0; i-- {
		if p[i].key == key {
			return p[i].value, true
		}
	}
	return "", false
}

// all are the values of the parameters of that key.
func (p parameters) all(key string) []string {
	var values []string
	for i := range p {
		if p[i].key == key {
			values = append(values, p[i].value)
		}
	}
	return values
}

// origin is what introduced a parameter of a call: a microversion, or an extension (one of
// wire.Extensions).
type origin struct {
	since     wire.Feature
	extension string
}

// queryParameter declares a parameter of a call.
type queryParameter struct {
	name string
	origin
	// text is for the reference.
	text string
	// required parameters are always there. repeated ones can come several times from a feature on;
	// without it the last counts, or several are refused.
	required bool
	repeated wire.Feature
	// grouped parameters can have the suffix of a request group.
	grouped bool
}

// The texts of parameters that several calls have.
const (
	textResources = "CLASS:AMOUNT,…: those that can allocate all of it at once."
	textRequired  = "TRAIT,!TRAIT,…: those that have the traits, and from 1.22 on not those with `!`. From 1.39 on, " +
		"in:TRAIT,TRAIT: any of them."
	textMemberOf = "UUID or in:UUID,UUID: those in (any of) the aggregates. From 1.32 on, !UUID or !in:UUID,UUID: " +
		"those in none of them."
)

// existsAt reports whether the parameter exists at a version, for a client that gets the
// extensions.
func (o origin) existsAt(v wire.Version, ext func() extensions) bool {
	return v.Has(o.since) && (o.extension == "" || ext().has(o.extension))
}

// unknownParameter is the error for a parameter that the call does not have at this version.
func unknownParameter(key string, o origin, v wire.Version) *osapi.Error {
	if o.extension != "" {
		return badRequest(
			"Invalid query string parameters: %q is an extension: it needs microversion %s or later and the header "+
				"%s: %[4]s, or [placement] extensions = [%[4]q] in the configuration of the server.",
			key,
			wire.Version(wire.RequestedExtensions),
			wire.HeaderExtensions,
			o.extension,
		)
	}
	return badRequest("Invalid query string parameters: %q is not a parameter of this call at microversion %s.",
		shortened(key), v)
}
