// SPDX-License-Identifier: Apache-2.0

package config

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
)

// ErrInvalid is wrapped by every error of Load and Validate.
var ErrInvalid = errors.New("invalid configuration")

// Invalid is an ErrInvalid with all errors that are not nil, a line for each; nil without any.
func Invalid(errs ...error) error {
	all := errors.Join(errs...)
	if all == nil {
		return nil
	}
	return fmt.Errorf("%w:\n%w", ErrInvalid, all)
}

// Unreadable reports whether an error is about a file that does not exist or cannot be read, for
// example because its disk is not mounted yet, so that the configuration may be valid.
func Unreadable(err error) bool {
	var file *fs.PathError
	return errors.As(err, &file)
}

// OnlyFlags reports whether an error of [Load] is only about the command line.
func OnlyFlags(err error) bool {
	var problems Problems
	return errors.As(err, &problems) &&
		!slices.ContainsFunc(problems, func(p *Problem) bool { return p.Source.Kind != FromFlag })
}

// Kind is the kind of a [Source].
type Kind string

// The kinds of sources, lowest precedence first.
const (
	FromDefault     Kind = "default"
	FromFile        Kind = "file"
	FromEnvironment Kind = "environment"
	FromFlag        Kind = "flag"
)

// Source is where a value was set.
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

// Problem is one error in the configuration.
type Problem struct {
	Source Source
	Key    string // Dotted, such as "tracker.pass_deadline"; empty when it is about a whole file.
	What   string // What is wrong.
	Hint   string // What to write instead.

	secret bool  // The line may hold a secret and is not to be shown.
	cause  error // The error of the operating system or of the TOML parser.
}

// Error formats the problem: source, key, error, line, fix.
func (p *Problem) Error() string {
	var b strings.Builder
	b.WriteString(p.Source.String())
	if p.Key != "" {
		b.WriteString(": " + p.Key)
	}
	b.WriteString(": " + p.What)
	if p.Source.text != "" {
		b.WriteString("\n" + p.Source.snippet(p.secret))
	}
	if p.Hint != "" {
		b.WriteString("\n  hint: " + p.Hint)
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

// snippet is the line with its number and the offending part underlined; of a
// line that may hold a secret only what stands before the value is shown.
func (s Source) snippet(secret bool) string {
	text := s.text
	if key, _, assigned := strings.Cut(text, "="); secret && assigned {
		text = key + "= (not shown)"
	}
	if s.column < 1 || s.column > len(s.text) {
		return textutil.Snippet(s.Line, text, 0, 0)
	}
	before, part := s.text[:s.column-1], s.text[s.column-1:]
	part = part[:min(max(s.width, 0), len(part))]
	return textutil.Snippet(s.Line, text, utf8.RuneCountInString(before)+1, utf8.RuneCountInString(part))
}

// Problems is every Problem found, in the order of the sources. It is the error
// that Load and Validate return; errors.As finds it, errors.Is finds ErrInvalid.
type Problems []*Problem

// maxShown limits the text of Problems, in case a file has another format.
const maxShown = 25

// Error lists the problems, one after the other.
func (ps Problems) Error() string { return textutil.List(ps, maxShown) }

// Unwrap gives each problem to errors.Is and errors.As.
func (ps Problems) Unwrap() []error { return textutil.Errors(ps) }

// err is the list as an error: nil when it is empty.
func (ps Problems) err() error {
	if len(ps) == 0 {
		return nil
	}
	return ps
}

// fault is a problem before it is known where the value stood.
type fault struct {
	what, hint string
	secret     bool
	cause      error // of the operating system
}

func faultf(hint, format string, args ...any) *fault {
	return &fault{what: fmt.Sprintf(format, args...), hint: hint}
}

func (f *fault) at(key string, s Source) *Problem {
	return &Problem{Source: s, Key: key, What: f.what, Hint: f.hint, secret: f.secret, cause: f.cause}
}
