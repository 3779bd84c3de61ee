// SPDX-License-Identifier: Apache-2.0

// Package qcow2 reads the headers of images in QEMU's format qcow2, and writes empty images that
// are layers over another one (QEMU's docs/interop/qcow2.txt). A host with only an emulator needs
// no qemu-img for it, and an image that a user made is read by bounded code: it reads nothing else.
package qcow2

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

const (
	magic = 0x514649fb // "QFI\xfb"

	clusterBits = 16
	clusterSize = 1 << clusterBits
	headerSize  = 104 // of version 3
	// maxName is the longest name of a backing file.
	maxName = 1023
	// maxSize is the largest disk that is written here: 64 TiB, a first-level table of 1 MiB.
	maxSize = 64 << 40

	extensionEnd    = 0
	extensionFormat = 0xe2792aca

	featureDataFile = 1 << 2
	featureCorrupt  = 1 << 1
	// knownFeatures has a bit for each incompatible feature that is known here: dirty, corrupt,
	// external data file, compression type, extended entries.
	knownFeatures = 1<<5 - 1
)

// ErrFormat says that a file is no qcow2 image.
var ErrFormat = errors.New("it is not a qcow2 image")

// ErrBackingFile says that an image leans on another file, which is whatever the maker of the image
// wrote there.
var ErrBackingFile = errors.New("it is a qcow2 image that refers to another file")

// header is the part of a header that all versions have.
type header struct {
	Magic, Version          uint32
	BackingOffset           uint64
	BackingSize             uint32
	ClusterBits             uint32
	Size                    uint64
	CryptMethod             uint32
	L1Size                  uint32
	L1Offset                uint64
	RefcountOffset          uint64
	RefcountClusters        uint32
	Snapshots               uint32
	SnapshotsOffset         uint64
	Incompatible, OK, Clear uint64 // from version 3
	RefcountOrder           uint32
	HeaderLength            uint32
}

// Size returns the size in bytes of the disk in an image that stands alone.
//
// Errors: [ErrFormat], [ErrBackingFile]; others for images that are damaged, encrypted or newer
// than this.
func Size(r io.Reader) (uint64, error) {
	text := make([]byte, headerSize)
	n, err := io.ReadFull(r, text)
	if n < 4 || binary.BigEndian.Uint32(text) != magic {
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return 0, fmt.Errorf("reading the header of an image: %w", err)
		}
		return 0, ErrFormat
	}
	const oldHeaderSize = 72
	if n < oldHeaderSize {
		return 0, errors.New("a qcow2 image is truncated")
	}
	var h header
	if _, err := binary.Decode(text, binary.BigEndian, &h); err != nil {
		return 0, fmt.Errorf("reading the header of an image: %w", err)
	}
	switch {
	case h.Version == 2:
		h.Incompatible = 0 // the bytes are something else
	case h.Version != 3:
		return 0, fmt.Errorf("a qcow2 image has the unknown version %d", h.Version)
	case n < headerSize:
		return 0, errors.New("a qcow2 image is truncated")
	}
	switch {
	case h.BackingOffset != 0, h.Incompatible&featureDataFile != 0:
		return 0, ErrBackingFile
	case h.Incompatible&featureCorrupt != 0:
		return 0, errors.New("a qcow2 image is marked as damaged")
	case h.Incompatible&^knownFeatures != 0:
		return 0, fmt.Errorf("a qcow2 image has unknown features (%#x)", h.Incompatible)
	case h.CryptMethod != 0:
		return 0, errors.New("a qcow2 image is encrypted")
	case h.Size > math.MaxInt64:
		return 0, fmt.Errorf("a qcow2 image has the invalid size %d", h.Size)
	}
	return h.Size, nil
}

// Backing returns the path of the image that another one is a layer over.
func Backing(r io.ReaderAt) (string, error) {
	path, _, err := backing(r)
	return path, err
}

// backing returns the path of the image below a layer, and the header, which says where the path
// is: at the end of the first cluster of a layer that QEMU or WriteOverlay wrote.
func backing(r io.ReaderAt) (string, header, error) {
	text := make([]byte, clusterSize)
	if _, err := r.ReadAt(text, 0); err != nil && !errors.Is(err, io.EOF) {
		return "", header{}, fmt.Errorf("reading the header of a layer: %w", err)
	}
	var h header
	if _, err := binary.Decode(text, binary.BigEndian, &h); err != nil {
		return "", header{}, fmt.Errorf("reading the header of a layer: %w", err)
	}
	switch {
	case h.Magic != magic:
		return "", header{}, ErrFormat
	// it may come from another host, and name any file
	case h.Version != 3, h.Incompatible&featureDataFile != 0, h.CryptMethod != 0:
		return "", header{}, errors.New("it is a qcow2 image that refers to another file, or is encrypted")
	case h.ClusterBits != clusterBits, h.BackingOffset < headerSize, h.BackingOffset > clusterSize,
		h.BackingSize == 0, h.BackingSize > maxName,
		h.BackingOffset+uint64(h.BackingSize) > clusterSize:
		return "", header{}, errors.New("it is no layer over an image, as the driver writes them")
	}
	return string(text[h.BackingOffset : h.BackingOffset+uint64(h.BackingSize)]), h, nil
}

// Rebase makes a layer refer to another path, and returns the former one.
func Rebase(f interface {
	io.ReaderAt
	io.WriterAt
}, path string) (former string, err error) {
	former, h, err := backing(f)
	switch {
	case err != nil, former == path:
		return former, err
	case len(path) == 0 || path[0] != '/' || len(path) > maxName || h.BackingOffset+uint64(len(path)) > clusterSize:
		return "", fmt.Errorf("the path of an image has %d bytes, for which the header of a layer has no space",
			len(path))
	}
	name := make([]byte, max(len(path), len(former))) // the rest of a longer one is cleared
	copy(name, path)
	const sizeAt = 16
	for _, part := range []struct {
		at   int64
		text []byte
	}{{int64(h.BackingOffset), name},
		{sizeAt, binary.BigEndian.AppendUint32(nil, uint32(len(path)))}} {
		if _, err := f.WriteAt(part.text, part.at); err != nil {
			return "", fmt.Errorf("writing the header of a layer: %w", err)
		}
	}
	return former, nil
}

// WriteOverlay writes an empty image of a size in bytes that is a layer over another one: what it
// does not hold itself is there. backing is the absolute path of that, format qcow2 or raw.
//
// Cost: some 200 KiB, and 8 bytes more for each 512 MiB above 4 TiB.
func WriteOverlay(w io.WriterAt, size uint64, backing, format string) error {
	switch {
	case len(backing) == 0 || len(backing) > maxName:
		return fmt.Errorf("the path of an image has %d bytes; it must have 1 to %d", len(backing), maxName)
	case backing[0] != '/':
		// QEMU takes "json:" and "nbd:" for more than a name
		return fmt.Errorf("%.60q is not an absolute path", backing)
	case size == 0 || size > maxSize || size%512 != 0:
		return fmt.Errorf("a disk cannot have %d bytes", size)
	}
	const (
		tableAt = 1 * clusterSize // of reference counts: one entry
		blockAt = 2 * clusterSize
		l1At    = 3 * clusterSize
	)
	// an entry stands for 8192 clusters
	l1Size := (size + clusterSize*clusterSize/8 - 1) / (clusterSize * clusterSize / 8)
	l1Clusters := (l1Size*8 + clusterSize - 1) / clusterSize

	text, err := binary.Append(nil, binary.BigEndian, header{
		Magic: magic, Version: 3, ClusterBits: clusterBits, Size: size, BackingSize: uint32(len(backing)),
		L1Size: uint32(l1Size), L1Offset: l1At, RefcountOffset: tableAt, RefcountClusters: 1,
		RefcountOrder: 4, HeaderLength: headerSize,
	})
	if err != nil {
		return err
	}
	text = binary.BigEndian.AppendUint32(text, extensionFormat)
	text = binary.BigEndian.AppendUint32(text, uint32(len(format)))
	text = append(text, format...)
	text = append(text, make([]byte, (8-len(format)%8)%8)...)
	text = binary.BigEndian.AppendUint32(text, extensionEnd)
	text = binary.BigEndian.AppendUint32(text, 0)
	binary.BigEndian.PutUint64(text[8:], uint64(len(text)))
	text = append(text, backing...)

	counts := make([]byte, clusterSize)
	for i := range 3 + l1Clusters {
		binary.BigEndian.PutUint16(counts[2*i:], 1)
	}
	table := make([]byte, clusterSize)
	binary.BigEndian.PutUint64(table, blockAt)
	for _, part := range []struct {
		at   int64
		text []byte
	}{{0, text}, {tableAt, table}, {blockAt, counts}, {l1At, make([]byte, l1Clusters*clusterSize)}} {
		if _, err := w.WriteAt(part.text, part.at); err != nil {
			return err
		}
	}
	return nil
}
