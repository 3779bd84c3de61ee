// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"syscall"

	"github.com/rs/zerolog"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/qcow2"
	"github.com/compute-agent/compute-agent/plugins"
)

// The files of an instance. The names of disks are Nova's where Nova has them.
const (
	rootDisk      = "disk"
	ephemeralDisk = "disk.eph0"
	swapDisk      = "disk.swap"
	seedDisk      = "disk.seed"
	consoleLog    = "console.log"
	startedNote   = "started"
)

// maxDiskGB bounds a disk: 64 TiB.
const maxDiskGB = 64 << 10

// disk is a disk to be made.
type disk struct {
	domain.Disk
	// write fills an empty file.
	write func(ctx context.Context, f *os.File) error
}

// holdsData reports whether a disk has what cannot be written again: it is not that which
// cloud-init asks for.
func (d disk) holdsData() bool { return filepath.Base(d.Path) != seedDisk }

// plan chooses the disks of an instance in its directory. It reads the image and creates nothing.
func (j *job) plan(spec plugins.InstanceSpec, d directory) ([]disk, error) {
	f := spec.Flavor
	for what, n := range map[string]int64{"root disk": f.RootGB, "ephemeral disk": f.EphemeralGB,
		"swap disk": f.SwapMB / 1024} {
		if n < 0 || n > maxDiskGB {
			return nil, j.fault("its flavor has a %s of %d GB; it must have 0 to %d", what, n, int64(maxDiskGB))
		}
	}
	granted := int64(0)
	for _, classes := range spec.Allocations {
		if gb := classes["DISK_GB"]; gb > 0 {
			granted += min(gb, math.MaxInt32)
		}
	}
	if need := f.RootGB + f.EphemeralGB + (f.SwapMB+1023)/1024; need > granted {
		return nil, j.fault("its flavor has %d GB of disks, but it was granted %d DISK_GB", need, granted)
	}
	var out []disk
	root, err := j.root(spec, d)
	if err != nil {
		return nil, err
	}
	if root != nil {
		out = append(out, *root)
	}
	if f.EphemeralGB > 0 {
		out = append(out, disk{Disk: domain.Disk{Path: d.file(ephemeralDisk), Format: rawType},
			write: writeEmpty(f.EphemeralGB << 30)})
	}
	if f.SwapMB > 0 {
		out = append(out, disk{Disk: domain.Disk{Path: d.file(swapDisk), Format: rawType},
			write: writeSwap(f.SwapMB << 20)})
	}
	if needsSeed(spec) {
		text, err := SeedDisk(spec)
		if err != nil {
			return nil, j.fault("could not write its user data and key: %v", err)
		}
		out = append(out, disk{Disk: domain.Disk{Path: d.file(seedDisk), Format: rawType, ReadOnly: true},
			write: func(_ context.Context, f *os.File) error {
				_, err := f.Write(text)
				return err
			}})
	}
	return out, nil
}

// root is the disk that an instance boots from; nil if its flavor has none.
func (j *job) root(spec plugins.InstanceSpec, d directory) (*disk, error) {
	size, raw := spec.Flavor.RootGB<<30, domain.Disk{Path: d.file(rootDisk), Format: rawType}
	switch {
	case spec.Image == "" && size == 0:
		return nil, nil
	case spec.Image == "":
		return &disk{Disk: raw, write: writeEmpty(size)}, nil
	case size == 0:
		return nil, j.fault("it has the image %.60q, but its flavor has no root disk", spec.Image)
	}
	image, err := j.image(spec.Image)
	if err != nil {
		return nil, err
	}
	switch {
	case image.size > uint64(size):
		return nil, j.fault("its image has a disk of %d bytes, and its flavor one of %d", image.size, size)
	case j.setup.layered:
		layer := domain.Disk{Path: raw.Path, Format: qcow2Type,
			Backing: domain.Backing{Path: image.path, Format: image.format}}
		return &disk{Disk: layer, write: func(_ context.Context, f *os.File) error {
			return qcow2.WriteOverlay(f, uint64(size), image.path, image.format)
		}}, nil
	case image.format != rawType:
		return nil, j.fault("its image %.60q is in the format qcow2, and disks are raw copies here", spec.Image)
	}
	return &disk{Disk: raw, write: func(ctx context.Context, f *os.File) error {
		from, err := os.Open(image.path)
		if err != nil {
			return err
		}
		defer func() { _ = from.Close() }()
		if err := copySparse(ctx, f, io.LimitReader(from, size)); err != nil {
			return err
		}
		return f.Truncate(size)
	}}, nil
}

// image is a file in the directory of images.
type image struct {
	path, format string
	size         uint64 // of the disk in it
}

// image finds an image by name. A name with a path in it, or that leads out of the directory, names
// no image.
func (j *job) image(name string) (image, error) {
	root, err := j.imagesOf(name)
	if err != nil {
		return image{}, err
	}
	defer func() { _ = root.Close() }()
	info, err := root.Stat(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
		return image{}, j.noImage(name) // opening a pipe would wait forever
	}
	if err != nil {
		j.log.Warn().Err(err).Str("image", name).
			Msg("Could not use an image. A link must not lead out of the directory of images.")
		return image{}, j.noImage(name)
	}
	file, err := root.Open(name)
	if err != nil {
		return image{}, fmt.Errorf("an image: %w", err)
	}
	defer func() { _ = file.Close() }()
	out := image{path: filepath.Join(root.Name(), name), format: qcow2Type}
	out.size, err = qcow2.Size(file)
	switch {
	case errors.Is(err, qcow2.ErrFormat):
		out.format, out.size = rawType, uint64(info.Size())
	case err != nil:
		j.log.Warn().Err(err).Str("image", name).Msg("Could not use an image.")
		return image{}, j.fault("the image %.60q cannot be used", name)
	}
	return out, nil
}

// reachable reports whether the emulator's user can enter the directories of the disks and of the
// images that they are layers over. libvirt makes that user the owner of the files themselves,
// unless dynamic_ownership is off, but not of the directories on the way.
func (j *job) reachable(qemu *User, d directory, disks []disk) error {
	if qemu == nil {
		return nil
	}
	for _, disk := range disks {
		for _, c := range []struct{ reason, path, open string }{
			{"the hypervisor cannot access its disks", d.path, DefaultGuests},
			{"the hypervisor cannot access its image", disk.Backing.Path, DefaultImages},
		} {
			if c.path == "" {
				continue
			}
			var denied *DeniedError
			if err := CanEnter(*qemu, c.path); errors.As(err, &denied) {
				return &failure{reason: c.reason, err: closedError(c.path, c.open, denied)}
			}
		}
	}
	return nil
}

// closedError is why the emulator's user cannot reach a path, with a hint.
func closedError(path, open string, denied *DeniedError) error {
	text := "QEMU's user " + denied.Error()
	if denied.Path != path {
		text = path + ": " + text
	}
	return fmt.Errorf("%s. Use a directory that it can enter, such as %s, or open this one: chmod o+x %s; systemd "+
		"closes the agent's own directories again at each start", text, open, denied.Path)
}

// unreadable adds to the error of a start which images the emulator's user cannot read: libvirt
// does not give them to it where dynamic_ownership is off, or the file system does not let it.
func (j *job) unreadable(err error, qemu *User, disks []disk) error {
	var denied *DeniedError
	for _, disk := range disks {
		if qemu != nil && disk.Backing.Path != "" && errors.As(CanRead(*qemu, disk.Backing.Path), &denied) {
			return fmt.Errorf("%w; QEMU's user %w: chmod o+r %s", err, denied, denied.Path)
		}
	}
	return err
}

// Closed returns the configured directories that the emulator's user certainly cannot enter, by
// key, with a hint each. guests is the directory of the guests' disks.
func (s Settings) Closed(qemu User, guests string) map[string]string {
	out := map[string]string{}
	check := func(key, path, open string) {
		var denied *DeniedError
		if err := CanEnter(qemu, path); errors.As(err, &denied) {
			out[key] = closedError(path, open, denied).Error()
		}
	}
	check(GuestsKey, guests, DefaultGuests)
	if s.layered { // else disks are copies
		check(ImagesKey, cmp.Or(s.images, DefaultImages), DefaultImages)
	}
	return out
}

// writeEmpty fills a file with nothing, which takes no space.
func writeEmpty(size int64) func(context.Context, *os.File) error {
	return func(_ context.Context, f *os.File) error { return f.Truncate(size) }
}

// writeSwap fills a file with the signature of Linux' swap space, version 1, in pages of 4 KiB:
// what mkswap writes.
func writeSwap(size int64) func(context.Context, *os.File) error {
	return func(_ context.Context, f *os.File) error {
		const page = 4096
		head := make([]byte, page)
		binary.LittleEndian.PutUint32(head[1024:], 1)
		binary.LittleEndian.PutUint32(head[1028:], uint32(min(size/page-1, math.MaxUint32)))
		copy(head[page-10:], "SWAPSPACE2")
		if _, err := f.Write(head); err != nil {
			return err
		}
		return f.Truncate(size)
	}
}

// copySparse copies, and leaves out what is empty.
func copySparse(ctx context.Context, to *os.File, from io.Reader) error {
	buffer, zero := make([]byte, 1<<20), make([]byte, 1<<20)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := io.ReadFull(from, buffer)
		switch {
		case n > 0 && bytes.Equal(buffer[:n], zero[:n]):
			_, e := to.Seek(int64(n), io.SeekCurrent)
			err = errors.Join(e, atEnd(err))
		case n > 0:
			_, e := to.Write(buffer[:n])
			err = errors.Join(e, atEnd(err))
		default:
			err = atEnd(err)
		}
		if err != nil {
			return err
		}
		if n < len(buffer) {
			return nil
		}
	}
}

// atEnd is no error at the end of what is read.
func atEnd(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

// diskReason is an error about disks in words for the instance's owner.
func diskReason(err error) string {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return "the host has no space left for its disks"
	}
	return "could not create its disks"
}

// directory is the directory of an instance: name, below path.
type directory struct{ path, name string }

// file is the path of a file in it.
func (d directory) file(name string) string { return filepath.Join(d.path, d.name, name) }

func (d directory) exists() bool {
	_, err := os.Lstat(filepath.Join(d.path, d.name))
	return err == nil
}

// remove removes it with all that is in it. Links are not followed.
func (d directory) remove() error {
	if err := os.RemoveAll(filepath.Join(d.path, d.name)); err != nil {
		return fmt.Errorf("removing the directory of an instance: %w", err)
	}
	return nil
}

// fill makes the directory and the disks in it that are missing. One that is there under its name
// is complete.
func (d directory) fill(ctx context.Context, disks []disk) error {
	if err := d.make(); err != nil {
		return err
	}
	for _, disk := range disks {
		if err := disk.make(ctx); err != nil {
			return fmt.Errorf("making the %s of an instance: %w", filepath.Base(disk.Path), err)
		}
	}
	return nil
}

// make makes the directory.
func (d directory) make() error {
	dir := filepath.Join(d.path, d.name)
	err := os.Mkdir(dir, 0o711) // the emulator has a user of its own
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("making the directory of an instance: %w", err)
	}
	info, err := os.Stat(dir)
	// as the plugin's main sets the umask, only one of a former release
	if err == nil && info.Mode().Perm()&0o711 != 0o711 {
		err = os.Chmod(dir, 0o711)
	}
	if err != nil {
		return fmt.Errorf("making the directory of an instance: %w", err)
	}
	return nil
}

// partial is the suffix of the name of a disk that is not complete.
const partial = ".part"

// make makes a disk under another name, which it loses when it is complete.
func (d disk) make(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if _, err := os.Lstat(d.Path); err == nil {
		return nil
	}
	part := d.Path + partial
	f, err := os.OpenFile(part, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(d.write(ctx, f), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(part, d.Path)
}

// markRan records that the instance ran. libvirt knows it too, until its daemon ends.
func (d directory) markRan(log zerolog.Logger) {
	f, err := os.OpenFile(d.file(startedNote), os.O_WRONLY|os.O_CREATE, 0o600)
	if err == nil {
		err = errors.Join(f.Sync(), f.Close())
	}
	if err != nil {
		log.Warn().Err(err).
			Msg("Could not record that an instance has run. If it is off when the libvirt daemon restarts, a " +
				"repeated create request starts it.")
	}
}

// markedRan reports whether that is recorded.
func (d directory) markedRan() bool {
	_, err := os.Lstat(d.file(startedNote))
	return err == nil
}
