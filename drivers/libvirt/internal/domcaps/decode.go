// SPDX-License-Identifier: Apache-2.0

package domcaps

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/boundedxml"
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
	decoder := boundedxml.NewDecoder(strings.NewReader(text), boundedxml.Bounds{Depth: maxDepth, Elements: maxElements}, idle)
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

// idle tells the CPU models, which are most of a real document.
func idle(depth int, name xml.Name) bool { return depth == 2 && name.Local == "cpu" }
