// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"net/http"
	"time"

	"github.com/compute-agent/compute-agent/cells/cellwire"
	"github.com/compute-agent/compute-agent/plugins"
)

// A disk goes from the source of a migration to the destination through a stream. The destination
// sends which file it wants from where, as JSON, and ends its direction. The source sends parts,
// each with its offset (8 bytes), its length (4, both big endian) and so many bytes, then a part
// without any and the SHA-256 of all before: what is cut off is not taken for the end, and what
// arrives is what was sent. What lies between the parts is zero.

// diskRequest is what the destination asks for.
type diskRequest struct {
	File   string `json:"file"`
	Offset int64  `json:"offset,omitempty"`
}

const (
	maxDiskRequest = 4 << 10
	partHeader     = 12
)

// sendDisk sends a file of a server that departed.
func sendDisk(ctx context.Context, node Node, offer cellwire.StreamOffer, end *cellwire.Stream) error {
	m, err := mover(node)
	if err != nil {
		return cellwire.Unable(offer.UUID, plugins.AbilityMigrate)
	}
	text, err := io.ReadAll(io.LimitReader(end, maxDiskRequest))
	if err != nil {
		return err
	}
	var req diskRequest
	if err := json.Unmarshal(text, &req); err != nil {
		return &cellwire.Error{Status: http.StatusBadRequest, Code: cellwire.CodeBadRequest,
			Message: "The request for a disk cannot be read: " + err.Error()}
	}
	sum := sha256.New()
	to := bufio.NewWriterSize(end, plugins.MaxChunk)
	out := io.MultiWriter(to, sum)
	err = m.ReadFile(ctx, node.Name, offer.UUID, req.File, req.Offset, func(offset int64, data []byte) error {
		if _, err := out.Write(headerOf(offset, len(data))); err != nil {
			return err
		}
		_, err := out.Write(data)
		return err
	})
	var fault *plugins.InstanceFault
	if errors.As(err, &fault) {
		return &cellwire.Error{Status: http.StatusConflict,
			Code: cellwire.CodeConflict, Message: clipMiddle(fmt.Sprintf("Instance %s: %s", offer.UUID, fault.Reason))}
	}
	if err == nil {
		_, err = out.Write(headerOf(0, 0))
	}
	if err == nil {
		_, err = to.Write(sum.Sum(nil))
	}
	if err == nil {
		err = to.Flush()
	}
	if err == nil {
		err = end.CloseWrite()
	}
	return err
}

func headerOf(offset int64, size int) []byte {
	header := binary.BigEndian.AppendUint64(make([]byte, 0, partHeader),
		uint64(offset)) // it is not negative
	return binary.BigEndian.AppendUint32(header, uint32(size)) // at most MaxChunk
}

// sourceFiles reads the files on the source host of a migration, through the cell.
type sourceFiles struct {
	worker *Worker
	server *server
	// failed says that the last file was not read to its end.
	failed bool
	// refused is why the source does not let them be read: asking again does not help.
	refused string
}

// ReadFile implements [plugins.FileReader].
func (f *sourceFiles) ReadFile(ctx context.Context, name string, offset int64, each plugins.ChunkFunc) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f.failed = true
	end, err := f.worker.cfg.Cell.OpenSource(ctx, f.worker.cfg.Host, f.server.uuid)
	if err != nil {
		return fmt.Errorf("opening a stream to its source: %w", err)
	}
	defer func() { _ = end.Close() }() // all of it was read, or it is of no use
	request, err := json.Marshal(diskRequest{File: name, Offset: offset})
	if err == nil {
		_, err = end.Write(request)
	}
	if err == nil {
		err = end.CloseWrite()
	}
	if err == nil {
		err = receiveDisk(end, func(offset int64, data []byte) error {
			f.worker.mu.Lock()
			f.server.copied = time.Now()
			f.worker.mu.Unlock()
			return each(offset, data)
		})
	}
	f.failed = err != nil
	var refused *cellwire.Error
	if errors.As(err, &refused) && refused.Status == http.StatusConflict {
		f.refused = refused.Message
	}
	return err
}

// timedOut reports whether the source could not be read for so long that it will not be waited for
// any longer.
func (f *sourceFiles) timedOut(begun time.Time) bool {
	f.worker.mu.Lock()
	defer f.worker.mu.Unlock()
	return f.failed && time.Since(begun) > sourceTimeout && time.Since(f.server.copied) > sourceTimeout
}

// receiveDisk takes the parts of a file, until the source says that these were all.
func receiveDisk(end io.Reader, each plugins.ChunkFunc) error {
	sum := sha256.New()
	buffered := bufio.NewReaderSize(end, plugins.MaxChunk)
	from := io.TeeReader(buffered, sum)
	data := make([]byte, plugins.MaxChunk)
	for {
		header := data[:partHeader]
		if _, err := io.ReadFull(from, header); err != nil {
			return cutOff(err)
		}
		offset, size := binary.BigEndian.Uint64(header), binary.BigEndian.Uint32(header[8:])
		switch {
		case size == 0:
			return checkSum(buffered, sum)
		case size > plugins.MaxChunk || offset > 1<<62:
			return fmt.Errorf("the source sent a part of %d bytes at %d", size, offset)
		}
		if _, err := io.ReadFull(from, data[:size]); err != nil {
			return cutOff(err)
		}
		if err := each(int64(offset), data[:size]); err != nil {
			return err
		}
	}
}

// checkSum compares what was received with what the source sent.
func checkSum(from io.Reader, sum hash.Hash) error {
	want := make([]byte, sha256.Size)
	if _, err := io.ReadFull(from, want); err != nil {
		return cutOff(err)
	}
	if !bytes.Equal(want, sum.Sum(nil)) {
		return errors.New("what arrived of a disk is not what its source sent: the checksums differ")
	}
	return nil
}

// cutOff is the error of a source that ended too early.
func cutOff(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("receiving a disk from its source: %w", err)
}
