// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/discovery"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/instances"
)

// diskTimeout is how long a pass waits for the file system of the guests' disks.
const diskTimeout = 10 * time.Second

// disks measures the file system of the guests' disks.
type disks struct {
	measure func(configured string) (discovery.Filesystem, error)
	pending limitedRead[string, discovery.Filesystem]
}

// discover measures the configured directory, or the usual one for "".
func (d *disks) discover(ctx context.Context, configured string) (discovery.Filesystem, error) {
	disk, err := d.pending.await(ctx, configured, func() (discovery.Filesystem, error) { return d.measure(configured) })
	if !errors.Is(err, errNoResponse) {
		return disk, err
	}
	where := configured
	if where == "" {
		where = novaInstances + " or " + libvirtImages
	}
	return discovery.Filesystem{}, &notReadyError{
		fmt.Errorf("the file system of the guests' disks (instances_path: %s) does not respond: if it is a network "+
			"file system, its server may be down", where),
	}
}

// limitedRead reads files that may be on a network file system, which blocks the caller forever if
// its server is down. So each read has its own goroutine, one at a time.
type limitedRead[K comparable, T any] struct {
	key     K
	pending chan readResult[T] // nil if none is under way
}

type readResult[T any] struct {
	out T
	err error
}

// errNoResponse means that a read did not end in time.
var errNoResponse = errors.New("the file system does not respond")

// await waits for a look, for diskTimeout at most. One that ends too late serves the next call with
// the same key. Errors: errNoResponse; those of the look.
func (l *limitedRead[K, T]) await(ctx context.Context, key K, look func() (T, error)) (T, error) {
	if l.pending == nil || l.key != key {
		answers := make(chan readResult[T], 1)
		l.pending, l.key = answers, key
		go func() {
			out, err := look()
			answers <- readResult[T]{out, err}
		}()
	}
	limit := time.NewTimer(diskTimeout)
	defer limit.Stop()
	select {
	case found := <-l.pending:
		l.pending = nil
		return found.out, found.err
	case <-limit.C:
	case <-ctx.Done():
	}
	var none T
	return none, errNoResponse
}

// checkAccess notes which directories of instances the user that emulators run as surely cannot
// reach.
func (d *Driver) checkAccess(ctx context.Context, cfg config, f facts) {
	if cfg.Instances == nil || d.known.qemu == nil {
		return
	}
	qemu := *d.known.qemu
	closed, err := d.access.await(ctx, f.disk.Path,
		func() (map[string]string, error) { return cfg.instances.Closed(qemu, f.disk.Path), nil })
	d.discrepancies.addIf(err != nil, "instances-access",
		"cannot check whether QEMU can reach the guests' disks and images: %v", err)
	d.discrepancies.addIf(closed[instances.GuestsKey] != "", "instances-path", "guests cannot start (%s): %s",
		instances.GuestsKey, closed[instances.GuestsKey])
	d.discrepancies.addIf(closed[instances.ImagesKey] != "", "images-path",
		"guests with an image cannot start (%s): %s", instances.ImagesKey, closed[instances.ImagesKey])
}

// measureDisk looks at a directory that the configuration names, which must exist: it may be one
// that is not mounted yet. For the usual one the closest directory above it will do.
func measureDisk(configured string) (discovery.Filesystem, error) {
	dir := configured
	if dir == "" {
		dir = novaInstances
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			dir = discovery.NearestDir(libvirtImages)
		}
	}
	disk, err := discovery.StatFilesystem(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return disk, &notReadyError{
			fmt.Errorf("the directory of the guests' disks (instances_path) %s does not exist: create it, mount its "+
				"file system, or correct instances_path", dir),
		}
	case err != nil:
		return disk, &notReadyError{fmt.Errorf("measuring the directory of the guests' disks (instances_path): %w",
			err)}
	}
	return disk, nil
}
