// SPDX-License-Identifier: Apache-2.0

package domcaps

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Bounds of what is read. A real document has some 20 KB, 500 elements, 6 levels.
const (
	maxBytes    = 4 << 20 // libvirt's own limit of a string in one message
	maxDepth    = 32
	maxElements = 50_000
	maxWord     = 4096    // a path
	maxCount    = 1 << 20 // of processors, of guests
)

// decode reads one whole document and makes sure that nothing follows.
func decode(text string, into any) error {
	if len(text) > maxBytes {
		return fmt.Errorf("the XML has %d bytes, more than %d", len(text), maxBytes)
	}
	decoder := xml.NewTokenDecoder(&bounded{from: xml.NewDecoder(strings.NewReader(text))})
	if err := decoder.Decode(into); err != nil {
		if errors.Is(err, io.EOF) {
			return errors.New("the XML is empty")
		}
		return fmt.Errorf("the XML cannot be read: %w", err)
	}
	for {
		token, err := decoder.Token()
		switch token := token.(type) {
		case xml.StartElement:
			return errors.New("an element follows the end of the XML")
		case xml.CharData:
			if len(bytes.TrimSpace(token)) > 0 {
				return errors.New("text follows the end of the XML")
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("after the end of the XML: %w", err)
		}
	}
}

// bounded is the tokens of a document that is neither too deep nor too large and has no definitions of its own. It leaves out the CPU models,
// which are most of a real one.
type bounded struct {
	from            *xml.Decoder
	depth, elements int
}

// Token implements [xml.TokenReader].
func (b *bounded) Token() (xml.Token, error) {
	for {
		token, err := b.next()
		start, isStart := token.(xml.StartElement)
		if err != nil || !isStart || b.depth != 2 || start.Name.Local != "cpu" {
			return token, err
		}
		for b.depth >= 2 {
			if _, err := b.next(); errors.Is(err, io.EOF) {
				return nil, io.ErrUnexpectedEOF
			} else if err != nil {
				return nil, err
			}
		}
	}
}

func (b *bounded) next() (xml.Token, error) {
	token, err := b.from.RawToken()
	switch token.(type) {
	case xml.StartElement:
		b.depth++
		b.elements++
		if b.depth > maxDepth {
			return nil, fmt.Errorf("elements are nested deeper than %d", maxDepth)
		}
		if b.elements > maxElements {
			return nil, fmt.Errorf("there are more than %d elements", maxElements)
		}
	case xml.EndElement:
		b.depth--
	case xml.Directive:
		return nil, errors.New("there is a document type declaration")
	}
	return token, err
}
