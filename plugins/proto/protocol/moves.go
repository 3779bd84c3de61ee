// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"errors"
	"fmt"
	"math"
	"unicode/utf8"

	driverv1 "github.com/compute-agent/compute-agent/plugins/proto/driver/v1"
)

// Limits of moves, in bytes.
const (
	MaxOffer    = 3 << 10
	MaxChunk    = 1 << 20
	MaxFileName = 255
)

// CheckOffer returns an error for what Depart cannot return.
func CheckOffer(offer string) error {
	switch {
	case len(offer) > MaxOffer:
		return fmt.Errorf("the offer has %d bytes, at most %d are allowed", len(offer), MaxOffer)
	case !utf8.ValidString(offer):
		return errors.New("the offer is not valid UTF-8")
	}
	return nil
}

// CheckFile returns an error for a part of a file that cannot be asked for.
func CheckFile(name string, offset int64) error {
	switch {
	case name == "" || len(name) > MaxFileName:
		return fmt.Errorf("the name of a file has %d bytes: it must have 1 to %d", len(name), MaxFileName)
	case !utf8.ValidString(name):
		return fmt.Errorf("the name of a file %q is not valid UTF-8", shown(name))
	case offset < 0:
		return fmt.Errorf("the offset %d is negative", offset)
	}
	return nil
}

// Chunks checks the order of the parts of a file.
type Chunks struct{ next int64 }

// ChunksFrom is for a file that is read from an offset.
func ChunksFrom(offset int64) *Chunks { return &Chunks{next: offset} }

// Check returns an error for a part that cannot follow.
func (c *Chunks) Check(m *driverv1.FileChunk) error {
	size := int64(len(m.GetData()))
	switch {
	case size == 0 || size > MaxChunk:
		return fmt.Errorf("a part of a file has %d bytes: it must have 1 to %d", size, MaxChunk)
	case m.GetOffset() < c.next:
		return fmt.Errorf("a part of a file is at %d, and what is before %d was sent already", m.GetOffset(), c.next)
	case m.GetOffset() > math.MaxInt64-size:
		return fmt.Errorf("a part of a file at %d is too far", m.GetOffset())
	}
	c.next = m.GetOffset() + size
	return nil
}
