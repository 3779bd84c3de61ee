// SPDX-License-Identifier: Apache-2.0

package libvirt

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hostfs"
)

// diskTimeout is how long a pass waits for the file system of the guests' disks.
const diskTimeout = 10 * time.Second

// disks measures the file system of the guests' disks. That may be a network file system, and one whose server is gone
// blocks whoever looks at it, for ever: a measurement has a goroutine of its own, of which there is one at a time.
type disks struct {
	measure func(configured string) (hostfs.Filesystem, error)

	configured string
	pending    chan measured // nil if none is on its way
}

type measured struct {
	disk hostfs.Filesystem
	err  error
}

// survey measures the configured directory, or the usual one for "". A measurement that comes too late serves the next
// call.
func (d *disks) survey(ctx context.Context, configured string) (hostfs.Filesystem, error) {
	if d.pending == nil || d.configured != configured {
		answers := make(chan measured, 1)
		d.pending, d.configured = answers, configured
		go func() {
			disk, err := d.measure(configured)
			answers <- measured{disk, err}
		}()
	}
	limit := time.NewTimer(diskTimeout)
	defer limit.Stop()
	select {
	case m := <-d.pending:
		d.pending = nil
		return m.disk, m.err
	case <-limit.C:
	case <-ctx.Done():
	}
	where := configured
	if where == "" {
		where = novaInstances + " or " + libvirtImages
	}
	return hostfs.Filesystem{}, &notReadyError{fmt.Errorf("the file system of the guests' disks (instances_path: %s) does not answer: if it is a network file system, its server is away", where)}
}

// measureDisk looks at a directory that the configuration names, which must exist: it may be one that is not mounted yet.
// For the usual one the closest directory above it will do.
func measureDisk(configured string) (hostfs.Filesystem, error) {
	dir := configured
	if dir == "" {
		dir = novaInstances
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			dir = hostfs.NearestDir(libvirtImages)
		}
	}
	disk, err := hostfs.StatFilesystem(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return disk, &notReadyError{fmt.Errorf("the directory of the guests' disks (instances_path) %s does not exist: create it, mount its file system, or correct instances_path", dir)}
	case err != nil:
		return disk, &notReadyError{fmt.Errorf("measuring the directory of the guests' disks (instances_path): %w", err)}
	}
	return disk, nil
}
