// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
)

// None stands for a number that something does not have: a device without NUMA cell, a package that
// firmware does not number.
const None = -1

// Host is everything. Lists are in the order of numbers, addresses or names.
type Host struct {
	Topology
	Devices []machine.Device
	// Unread are the PCI devices that are not among Devices, because something is wrong with them.
	Unread  []machine.UnreadDevice
	Parents []MdevParent
	KVM     KVM
}

// Reader reads below a directory. It keeps nothing from one call to the next.
type Reader struct{ root *Dir }

// Open opens the directory that has sys in it: "/", or another one in tests and demonstrations.
func Open(dir string) (*Reader, error) {
	root, err := OpenDir(dir)
	if err != nil {
		return nil, fmt.Errorf("reading the host's hardware: %w", err)
	}
	return &Reader{root}, nil
}

// Close ends the reading.
func (r *Reader) Close() error { return r.root.Close() }

// Files is how many files and directories the reader has read so far.
func (r *Reader) Files() int { return r.root.Files() }

// Read reads everything, but of the types of mediated devices only those that are wanted (nil:
// all), and checks that the parts agree.
func Read(dir string, want func(mdevType string) bool) (h Host, err error) {
	r, err := Open(dir)
	if err != nil {
		return Host{}, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	return r.Read(want)
}

// Read reads everything, but of the types of mediated devices only those that are wanted (nil:
// all), and checks that the parts agree: a device of a cell that there is not is unread.
func (r *Reader) Read(want func(mdevType string) bool) (Host, error) {
	var h Host
	for _, part := range []func() error{
		func() (err error) { h.Topology, err = r.Topology(); return err },
		func() (err error) { h.Devices, h.Unread, err = r.Devices(); return err },
		func() error { h.Devices, h.Unread = leaveOut(h.Devices, h.Unread, r.checkCells(h)); return nil },
		func() (err error) { h.Parents, err = r.MdevParents(want); return err },
		func() (err error) { h.KVM, err = r.KVM(); return err },
	} {
		if err := part(); err != nil {
			return Host{}, withHint(err)
		}
	}
	h.Parents = append(h.Parents, r.vgpuParents(h.Devices, want)...)
	slices.SortFunc(h.Parents, compareParents)
	return h, nil
}

// checkCells finds devices in cells that are not online.
func (r *Reader) checkCells(h Host) map[machine.Address]error {
	problems := map[machine.Address]error{}
	for _, d := range h.Devices {
		if d.Cell != None && h.Cell(d.Cell) == nil {
			problems[d.Address] = fmt.Errorf("%s: %d is not among the cells that are online",
				r.root.Path(pciDevices+"/"+d.Address.String()+"/numa_node"), d.Cell)
		}
	}
	return problems
}

// inDir opens a directory, reads from it, and closes it.
func inDir(d *Dir, name string, read func(*Dir) error) error {
	sub, err := d.Sub(name)
	if err != nil {
		return err
	}
	return errors.Join(read(sub), sub.Close())
}

// HostError is an inconsistency of the kernel's files: the file, its content, the problem and a
// hint. It wraps the cause.
type HostError struct{ cause error }

// Error has all of it.
func (e *HostError) Error() string { return e.cause.Error() + ". " + e.Hint() }

// Unwrap is the cause.
func (e *HostError) Unwrap() error { return e.cause }

// permissionHint says what to do about a file that the agent's user must not read.
const permissionHint = "Let the agent's user read this file, or run the agent as another user; read access is enough"

// Hint is what to do, as a sentence.
func (e *HostError) Hint() string {
	switch {
	case errors.Is(e.cause, fs.ErrPermission):
		return permissionHint + "."
	case absent(e.cause):
		return "This is temporary while devices are added or removed. If it persists, make sure that the agent sees " +
			"all of the host's /sys and /proc (containers hide parts of them), and that the option chroot, if set, " +
			"names the directory that contains them."
	}
	return "This is temporary while devices are added or removed. If it persists, the kernel or the device's driver " +
		"is at fault: compare the file with the kernel log, and reload the driver or restart the host. Until then " +
		"the last reported hardware of this host stays in Placement."
}

// withHint makes an error a HostError, once.
func withHint(err error) error {
	var already *HostError
	if err == nil || errors.As(err, &already) {
		return err
	}
	return &HostError{err}
}
