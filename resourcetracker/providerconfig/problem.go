// SPDX-License-Identifier: Apache-2.0

package providerconfig

import (
	"errors"
	"fmt"
	"strings"

	"github.com/compute-agent/compute-agent/internal/lib/textutil"
)

// ErrInvalid is wrapped by every error of [Load]: the files, not the machine, are at fault.
var ErrInvalid = errors.New("invalid provider configuration")

// Place is a position in a file.
type Place struct {
	File   string `json:"file"`
	Line   int    `json:"line,omitempty"`   // From 1; 0 when it is about the whole file.
	Column int    `json:"column,omitempty"` // From 1, in characters; 0 when it is about the whole line.
}

// String is FILE, FILE:LINE or FILE:LINE:COLUMN.
func (p Place) String() string {
	switch {
	case p.Line == 0:
		return p.File
	case p.Column == 0:
		return fmt.Sprintf("%s:%d", p.File, p.Line)
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// line is the place without its column.
func (p Place) line() string { return Place{File: p.File, Line: p.Line}.String() }

// Problem is one thing that is wrong with a file.
type Problem struct {
	Place
	// Path is the property, such as "providers[0].inventories.additional[1].CUSTOM_X.total"; empty
	// when it is about the whole file.
	Path string
	// What is wrong, and Hint what to write instead.
	What, Hint string

	text  string // the line itself
	width int    // characters to underline
	cause error
}

// Error is the problem in full: place, property, what is wrong, the line, the hint.
func (p *Problem) Error() string {
	var b strings.Builder
	b.WriteString(sentence(p.Place, p.Path, p.What))
	if p.text != "" {
		b.WriteString("\n" + textutil.Snippet(p.Line, p.text, p.Column, p.width))
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

func sentence(place Place, path, what string) string {
	if path != "" {
		path += ": "
	}
	return place.String() + ": " + path + what
}

// Problems is everything that is wrong, in the order of the files and their lines. It is the error
// of [Load]; errors.As finds it, errors.Is finds [ErrInvalid].
type Problems []*Problem

// maxShown bounds the text of Problems, maxKept what is kept of one file: a file of another format
// would fill the screen.
const (
	maxShown = 100
	maxKept  = 1000
)

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

// Warning is something that is accepted and most likely not meant.
type Warning struct {
	Place
	Path string `json:"path,omitempty"`
	What string `json:"what"`
	Hint string `json:"remedy"`
}

// String is the warning in full, on one line.
func (w Warning) String() string { return sentence(w.Place, w.Path, w.What) + "; " + w.Hint }

// clip keeps hostile values from filling a line.
func clip(s string) string { return fmt.Sprintf("%q", textutil.Shorten(s, 80)) }
