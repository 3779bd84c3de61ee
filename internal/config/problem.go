// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"strings"
)

// ErrInvalid is wrapped by every error that Load and Validate return: the
// configuration, not the machine, is at fault.
var ErrInvalid = errors.New("invalid configuration")

// Kind says what sort of place a value came from.
type Kind string

// The places a value can come from, weakest first.
const (
	FromDefault     Kind = "default"
	FromFile        Kind = "file"
	FromEnvironment Kind = "environment"
	FromFlag        Kind = "flag"
)

// Source is the place a value came from.
type Source struct {
	Kind Kind   `json:"kind"`
	Name string `json:"name,omitempty"` // File, variable or flag; for a default, what it was computed from.
	Line int    `json:"line,omitempty"` // From 1; files only.

	column int    // From 1, in bytes.
	width  int    // Bytes to underline.
	text   string // The line itself.
}

// String is the source in a word: "default", "FILE:LINE", "environment NAME".
func (s Source) String() string {
	switch s.Kind {
	case FromFile:
		if s.Line == 0 {
			return s.Name
		}
		return fmt.Sprintf("%s:%d", s.Name, s.Line)
	case FromEnvironment:
		return "environment " + s.Name
	case FromFlag:
		return "flag " + s.Name
	default:
		if s.Name != "" {
			return "default (" + s.Name + ")"
		}
		return "default"
	}
}

// Problem is one thing that is wrong with the configuration.
type Problem struct {
	Source Source
	Key    string // Dotted, such as "tracker.pass_deadline"; empty when it is about a whole file.
	What   string // What is wrong.
	Remedy string // What to write instead.

	secret bool  // The line may hold a secret and is not to be shown.
	cause  error // The error of the operating system or of the TOML parser.
}

// Error is the problem in full: place, key, what is wrong, the line, the remedy.
func (p *Problem) Error() string {
	var b strings.Builder
	b.WriteString(p.Source.String())
	if p.Key != "" {
		b.WriteString(": " + p.Key)
	}
	b.WriteString(": " + p.What)
	if p.Source.text != "" {
		b.WriteString("\n" + p.Source.excerpt(p.secret))
	}
	if p.Remedy != "" {
		b.WriteString("\n  remedy: " + p.Remedy)
	}
	return b.String()
}

// Unwrap makes a Problem an ErrInvalid, and whatever caused it.
func (p *Problem) Unwrap() []error {
	if p.cause == nil {
		return []error{ErrInvalid}
	}
	return []error{ErrInvalid, p.cause}
}

// maxExcerpt bounds how much of a line is shown, in bytes.
const maxExcerpt = 160

// excerpt is the line with its number and the offending part underlined; of a
// line that may hold a secret only what stands before the value is shown.
func (s Source) excerpt(secret bool) string {
	text := strings.ReplaceAll(s.text, "\t", " ")
	if key, _, assigned := strings.Cut(text, "="); secret && assigned {
		text = key + "= (not shown)"
	}
	if len(text) > maxExcerpt {
		text = strings.ToValidUTF8(text[:maxExcerpt], "") + "…"
	}
	number := fmt.Sprintf("%5d", s.Line)
	out := fmt.Sprintf("%s| %s", number, text)
	if s.column < 1 || s.column > len(text) {
		return out
	}
	width := max(1, min(s.width, len(text)-s.column+1))
	return fmt.Sprintf("%s\n     | %s%s", out, strings.Repeat(" ", s.column-1), strings.Repeat("~", width))
}

// Problems is every Problem found, in the order of the sources. It is the error
// that Load and Validate return; errors.As finds it, errors.Is finds ErrInvalid.
type Problems []*Problem

// maxShown bounds the text of Problems; a file in another format would
// otherwise fill the screen.
const maxShown = 25

// Error lists the problems, one after the other.
func (ps Problems) Error() string {
	parts := make([]string, 0, len(ps)+1)
	for i, p := range ps {
		if i == maxShown {
			parts = append(parts, fmt.Sprintf("and %d more", len(ps)-maxShown))
			break
		}
		parts = append(parts, p.Error())
	}
	return strings.Join(parts, "\n")
}

// Unwrap gives each problem to errors.Is and errors.As.
func (ps Problems) Unwrap() []error {
	errs := make([]error, len(ps))
	for i, p := range ps {
		errs[i] = p
	}
	return errs
}

// err is the list as an error: nil when it is empty.
func (ps Problems) err() error {
	if len(ps) == 0 {
		return nil
	}
	return ps
}

// fault is a problem before it is known where the value stood.
type fault struct {
	what, remedy string
	secret       bool
}

func faultf(remedy, format string, args ...any) *fault {
	return &fault{what: fmt.Sprintf(format, args...), remedy: remedy}
}

func (f *fault) at(key string, s Source) *Problem {
	return &Problem{Source: s, Key: key, What: f.what, Remedy: f.remedy, secret: f.secret}
}
