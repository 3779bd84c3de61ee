// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/qcow2"
	"github.com/compute-agent/compute-agent/plugins"
)

// sourceError says that a disk could not be read from its source, which may be possible later.
type sourceError struct{ error }

// Unwrap is the cause.
func (e *sourceError) Unwrap() error { return e.error }

// copyFrom fills a file with one of the source, and has a layer lean on the image here.
func (j *job) copyFrom(source plugins.FileReader, f offeredFile, base string) func(context.Context, *os.File) error {
	return func(ctx context.Context, to *os.File) error {
		var own error
		err := source.ReadFile(ctx, f.Name, 0, func(offset int64, data []byte) error {
			if offset+int64(len(data)) > f.Size {
				own = fmt.Errorf("the source sent more than the %d bytes of %s", f.Size, f.Name)
			} else {
				_, own = to.WriteAt(data, offset)
			}
			return own
		})
		switch {
		case own != nil:
			return own
		case err != nil:
			return &sourceError{fmt.Errorf("copying %s: %w", f.Name, err)}
		}
		if err := to.Truncate(f.Size); err != nil {
			return err
		}
		if base == "" {
			return nil
		}
		former, err := qcow2.Rebase(to, base)
		if err == nil && filepath.Base(former) != filepath.Base(base) {
			err = fmt.Errorf("it is a layer over %.200q, and its image is %s", former, filepath.Base(base))
		}
		if err != nil {
			return fmt.Errorf("the %s of the source: %w", f.Name, err)
		}
		return nil
	}
}

// ReadFile reads a disk of an instance that departed, as [plugins.InstanceMover] says.
func (m *Manager) ReadFile(ctx context.Context, node, uuid, name string, offset int64, send plugins.ChunkFunc) error {
	j, err := m.begin(ctx, node, uuid)
	if err != nil {
		return err
	}
	return j.agentError(j.readFile(ctx, name, offset, send))
}

func (j *job) readFile(ctx context.Context, name string, offset int64, send plugins.ChunkFunc) error {
	g, err := j.findManaged(ctx)
	switch {
	case err != nil:
		return err
	case !slices.Contains(movable, name):
		return j.fault("it has no disk %.60q", name)
	case g.active():
		return j.fault("it runs, so its disks cannot be copied")
	}
	d, err := j.directory(ctx)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(d.file(name), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrPermission) {
		back := &failure{reason: "the agent of its host cannot read its disks", err: fmt.Errorf(
			"%w: libvirt gives disks back to their owner when a guest ends, where the file system keeps "+
				"extended attributes", err)}
		return back.fault(j.uuid)
	}
	if err != nil {
		return fmt.Errorf("instance %s: %w", j.uuid, err)
	}
	defer func() { _ = f.Close() }()
	return sendSparse(ctx, f, offset, send)
}

// sendSparse sends what is in a file from an offset on, and leaves out what is empty.
func sendSparse(ctx context.Context, f *os.File, offset int64, send plugins.ChunkFunc) error {
	const seekData = 3
	buffer, zero := make([]byte, plugins.MaxChunk), make([]byte, plugins.MaxChunk)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		data, err := f.Seek(offset, seekData)
		switch {
		case errors.Is(err, syscall.ENXIO): // nothing comes any more
			return nil
		case err == nil:
			offset = data
		case !errors.Is(err, syscall.EINVAL): // that file system does not know holes
			return err
		}
		n, err := f.ReadAt(buffer[:min(int64(len(buffer)), math.MaxInt64-offset)], offset)
		if n > 0 && !bytes.Equal(buffer[:n], zero[:n]) {
			if err := send(offset, buffer[:n]); err != nil {
				return err
			}
		}
		offset += int64(n)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}
