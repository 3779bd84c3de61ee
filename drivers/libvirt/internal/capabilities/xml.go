// SPDX-License-Identifier: Apache-2.0

package capabilities

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
)

// MaxXML is the most bytes of one document of libvirt's. The capabilities of a host with 512 CPUs
// have some 100 KB.
const MaxXML = 16 << 20

// Decode reads one document of libvirt's into a value, mostly one of package libvirtxml. Elements
// that the value has no field for are skipped. libvirtd is trusted not to be malicious, and may be
// wrong: a document beyond MaxXML is an error.
func Decode(text string, into any) error {
	if len(text) > MaxXML {
		return fmt.Errorf("the XML has %d bytes, more than %d", len(text), MaxXML)
	}
	err := xml.Unmarshal([]byte(text), into)
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("the XML is empty")
	case err != nil:
		return fmt.Errorf("the XML cannot be read: %w", err)
	}
	return nil
}
