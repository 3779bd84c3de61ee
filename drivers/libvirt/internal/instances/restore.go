// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/qcow2"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// Restore creates an instance again over its disks and leaves it off, as [plugins.InstanceRestorer]
// says: its domain was undefined with another tool, or libvirt was installed again.
//
// Nothing that is there is removed. The definition comes last, so that an instance either is whole
// or as it was.
func (m *Manager) Restore(
	ctx context.Context, node string, spec plugins.InstanceSpec, tree *providertree.Tree,
) (plugins.Instance, error) {
	j, err := m.begin(ctx, node, spec.UUID)
	if err != nil {
		return plugins.Instance{}, err
	}
	is, err := j.restore(ctx, spec, tree)
	m.forget(spec.UUID)
	var back *failure
	if errors.As(err, &back) {
		j.warn(back, "Could not create an instance again over its disks. The disks are left as they are.")
		err = back.fault(j.uuid)
	}
	return is, j.agentError(err)
}

func (j *job) restore(
	ctx context.Context, spec plugins.InstanceSpec, tree *providertree.Tree,
) (plugins.Instance, error) {
	g, err := j.findOwn(ctx)
	if err != nil {
		return plugins.Instance{}, err
	}
	if g.exists {
		return g.instance(), nil
	}
	d, err := j.directory(ctx)
	if err != nil {
		return plugins.Instance{}, err
	}
	hardware, err := j.hardware(spec)
	if err != nil {
		return plugins.Instance{}, err
	}
	made := spec
	if !j.setup.layered { // a copy does not lean on its image, which may be gone
		made.Image = ""
	}
	disks, err := j.plan(made, d)
	if err != nil {
		return plugins.Instance{}, err
	}
	if hardware.TPMVersion != "" {
		return plugins.Instance{}, j.fault("it has a virtual TPM, whose state was lost with its guest")
	}
	if err := j.checkDisks(d, disks); err != nil {
		return plugins.Instance{}, err
	}
	j.keep = true
	// what cloud-init asks for, where that is missing
	err = d.fill(ctx, slices.DeleteFunc(slices.Clone(disks), disk.holdsData))
	if err == nil {
		err = d.claim(j.node)
	}
	if err != nil {
		if ctx.Err() != nil {
			return plugins.Instance{}, err
		}
		return plugins.Instance{}, &failure{reason: diskReason(err), err: err}
	}
	d.markRan(j.log) // it ran before: only SetPower starts it
	if g, err = j.define(ctx, spec, hardware, tree, d, disks); err != nil {
		return plugins.Instance{}, err
	}
	j.log.Info().Str("domain", g.Name).Msg("Created the instance again over its disks.")
	return g.instance(), nil
}

// checkDisks returns a fault unless the disks of an instance are there, all of them but what can be
// written again, and that they are not those of another host.
func (j *job) checkDisks(d directory, disks []disk) error {
	d.refresh()
	claimed, err := d.claimed()
	switch {
	case err != nil:
		return err
	case claimed && !d.claimedBy(j.node):
		return &failure{reason: "its disks belong to another host",
			err: fmt.Errorf("%s has the claim of another node only", filepath.Join(d.path, d.name))}
	}
	for _, disk := range disks {
		if !disk.holdsData() {
			continue
		}
		if _, err := os.Lstat(disk.Path); err != nil {
			return &failure{reason: "its disks are not on its host", err: err}
		}
		if filepath.Base(disk.Path) == rootDisk && disk.Format == rawType {
			if err := isRaw(disk.Path); err != nil {
				return &failure{reason: otherFormat, err: err}
			}
		}
		if disk.Backing.Path != "" {
			err := checkBacking(disk.Path, disk.Backing.Path)
			switch {
			case errors.Is(err, qcow2.ErrFormat):
				return &failure{reason: otherFormat,
					err: fmt.Errorf("%s: %w, and disks are layers here: %s", disk.Path, err, formatHint)}
			case err != nil:
				return &failure{reason: "the host has its image elsewhere", err: err}
			}
		}
	}
	return nil
}

const (
	otherFormat = "its disk is of another format than disks are here"
	formatHint  = "set instances.images_type of the driver to what it was when the disk was made"
)

// isRaw makes sure that a root disk is a raw one: a guest that takes another format for raw sees no
// system, and can overwrite the disk.
func isRaw(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("reading the format of a disk: %w", err)
	}
	defer func() { _ = f.Close() }()
	_, err = qcow2.Size(f)
	var broken *fs.PathError
	switch {
	case errors.Is(err, qcow2.ErrFormat):
		return nil
	case errors.As(err, &broken):
		return err
	}
	return fmt.Errorf("%s is a qcow2 image, and its configuration says that it is raw: %s", path, formatHint)
}
