// SPDX-License-Identifier: Apache-2.0

// Package boundedxml reads XML that need not be well meant: no deeper and with no more elements than the caller allows, without definitions of
// its own, and without the elements that nobody looks at, which are most of what libvirt writes.
package boundedxml

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
)

// Bounds are those of a document. Its length is the caller's to check.
type Bounds struct{ Depth, Elements int }

// NewDecoder returns a decoder of from. skip says which elements are left out with all that is in them; it is asked once for each that
// is not, with its depth, which is 1 for the outermost.
func NewDecoder(from io.Reader, b Bounds, skip func(depth int, name xml.Name) bool) *xml.Decoder {
	return xml.NewTokenDecoder(&tokens{from: xml.NewDecoder(from), bounds: b, skip: skip})
}

type tokens struct {
	from            *xml.Decoder
	bounds          Bounds
	skip            func(depth int, name xml.Name) bool
	depth, elements int
}

// Token implements [xml.TokenReader].
func (t *tokens) Token() (xml.Token, error) {
	for {
		token, err := t.next()
		start, isStart := token.(xml.StartElement)
		if err != nil || !isStart || !t.skip(t.depth, start.Name) {
			return token, err
		}
		for outside := t.depth; t.depth >= outside; {
			if _, err := t.next(); errors.Is(err, io.EOF) {
				return nil, io.ErrUnexpectedEOF
			} else if err != nil {
				return nil, err
			}
		}
	}
}

// next is any token.
func (t *tokens) next() (xml.Token, error) {
	token, err := t.from.RawToken()
	switch token.(type) {
	case xml.StartElement:
		t.depth++
		t.elements++
		if t.depth > t.bounds.Depth {
			return nil, fmt.Errorf("elements are nested deeper than %d", t.bounds.Depth)
		}
		if t.elements > t.bounds.Elements {
			return nil, fmt.Errorf("there are more than %d elements", t.bounds.Elements)
		}
	case xml.EndElement:
		t.depth--
	case xml.Directive:
		return nil, errors.New("there is a document type declaration")
	}
	return token, err
}
