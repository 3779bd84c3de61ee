// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/compute-agent/compute-agent/internal/files"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// diskFile is the name of the only file of a machine.
const diskFile = "disk"

// storage is the key instances.storage: a directory of disks that several hosts may share. A disk
// is the file UUID.disk, which belongs to each node that has a file UUID.disk.NODE beside it.
type storage string

func (s storage) disk(uuid string) string { return filepath.Join(string(s), uuid+".disk") }

func (s storage) claim(uuid, node string) string { return s.disk(uuid) + "." + node }

// has reports whether a node claims a disk.
func (s storage) has(uuid, node string) bool {
	_, err := os.Lstat(s.claim(uuid, node))
	return s != "" && err == nil
}

// put writes the disk of a node, unless there is one.
func (s storage) put(uuid, node, text string) error {
	if s == "" {
		return nil
	}
	if _, err := os.Lstat(s.disk(uuid)); errors.Is(err, fs.ErrNotExist) {
		if err := files.Replace(s.disk(uuid), []byte(text)); err != nil {
			return fmt.Errorf("writing a disk: %w", err)
		}
	}
	if err := files.Replace(s.claim(uuid, node), nil); err != nil {
		return fmt.Errorf("claiming a disk: %w", err)
	}
	return nil
}

// rename makes the claim of a node that of its new name.
func (s storage) rename(uuid, from, to string) error {
	if !s.has(uuid, from) {
		return nil
	}
	if err := os.Rename(s.claim(uuid, from), s.claim(uuid, to)); err != nil {
		return fmt.Errorf("claiming a disk: %w", err)
	}
	return nil
}

// release takes back the claim of a node, and removes a disk that no other claims.
func (s storage) release(uuid, node string) error {
	if s == "" {
		return nil
	}
	if err := os.Remove(s.claim(uuid, node)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("giving up a disk: %w", err)
	}
	if others, err := filepath.Glob(s.claim(uuid, "*")); err != nil || len(others) > 0 {
		return err
	}
	if err := os.Remove(s.disk(uuid)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing a disk: %w", err)
	}
	return nil
}

// remove removes a disk with all claims to it.
func (s storage) remove(uuid string) error {
	if s == "" {
		return nil
	}
	all, err := filepath.Glob(s.disk(uuid) + "*")
	for _, name := range all {
		if gone := os.Remove(name); gone != nil && !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, fmt.Errorf("removing a disk: %w", gone))
		}
	}
	return err
}

// text returns the content of a machine's disk.
func (s storage) text(m machine) (string, error) {
	if s == "" {
		return m.Disk, nil
	}
	raw, err := os.ReadFile(s.disk(m.UUID))
	if err != nil {
		return "", fmt.Errorf("reading a disk: %w", err)
	}
	return string(raw), nil
}

// ownMachine is a machine of a node.
func (h *hypervisor) ownMachine(node, uuid string) (machine, error) {
	m, there, err := h.find(uuid)
	switch {
	case err != nil:
		return machine{}, err
	case !there || m.Node != node:
		return machine{}, &plugins.InstanceNotFound{UUID: uuid}
	}
	return m, nil
}

// Depart stops a machine. Its offer is the name of its file.
func (d *driver) Depart(_ context.Context, node, uuid string) (string, error) {
	_, h, err := d.manager(node)
	if err != nil {
		return "", err
	}
	m, err := h.ownMachine(node, uuid)
	if err != nil {
		return "", err
	}
	if m.Power != plugins.PowerShutdown {
		m.Power = plugins.PowerShutdown
		err = h.put(m)
	}
	return diskFile, err
}

// ReadFile reads the disk of a machine.
func (d *driver) ReadFile(_ context.Context, node, uuid, name string, offset int64, send plugins.ChunkFunc) error {
	cfg, h, err := d.manager(node)
	if err != nil {
		return err
	}
	m, err := h.ownMachine(node, uuid)
	switch {
	case err != nil:
		return err
	case name != diskFile:
		return &plugins.InstanceFault{UUID: uuid, Reason: fmt.Sprintf("it has no file %.60q", name)}
	case m.Power == plugins.PowerRunning:
		return &plugins.InstanceFault{UUID: uuid, Reason: "it runs, so its disk cannot be copied"}
	}
	text, err := cfg.Instances.Storage.text(m)
	if err != nil {
		return err
	}
	for offset < int64(len(text)) {
		end := min(offset+plugins.MaxChunk, int64(len(text)))
		if err := send(offset, []byte(text[offset:end])); err != nil {
			return err
		}
		offset = end
	}
	return nil
}

// Arrive creates a machine that is off. Its disk is where it was, if the source claims one on the
// storage here; otherwise it is copied, or made again in an evacuation.
func (d *driver) Arrive(
	ctx context.Context, node string, spec plugins.InstanceSpec, tree *providertree.Tree, from plugins.Arrival,
) (plugins.Instance, error) {
	cfg, h, err := d.manager(node)
	if err != nil {
		return plugins.Instance{}, err
	}
	m, there, err := h.find(spec.UUID)
	switch {
	case err != nil:
		return plugins.Instance{}, err
	case there && m.Node == node && m.Complete:
		return m.instance(), nil
	case there && m.Node != node:
		return plugins.Instance{},
			&plugins.InstanceFault{UUID: spec.UUID, Reason: "there is an instance of this uuid on another node"}
	}
	text, reason := "", cfg.refusal(spec, tree)
	if reason == "" && !cfg.Instances.Storage.has(spec.UUID, from.Node) {
		if text, err = arriving(ctx, node, spec.UUID, from); err != nil {
			return plugins.Instance{}, err
		}
		if limit := cfg.Instances.MaxDisk; limit > 0 && int64(len(text)) > limit {
			reason = "the host has no space left for its disk"
		}
	}
	if reason != "" {
		if there {
			err = errors.Join(h.remove(spec.UUID), cfg.Instances.Storage.release(spec.UUID, node))
		}
		return plugins.Instance{}, errors.Join(err, &plugins.InstanceFault{UUID: spec.UUID, Reason: reason})
	}
	if !there {
		if m, err = cfg.define(h, node, spec, tree); err != nil {
			return plugins.Instance{}, err
		}
	}
	if err := waitWhile(ctx, cfg.Instances.Hold); err != nil {
		return plugins.Instance{}, err
	}
	if err := cfg.Instances.Storage.put(m.UUID, node, text); err != nil {
		return plugins.Instance{}, err
	}
	m.Power, m.Complete, m.Disk = plugins.PowerShutdown, true, text
	log := plugins.Logger(ctx)
	log.Info().Str("instance", m.UUID).Str("node", node).Str("from", from.Node).
		Msg("The instance arrived from another host.")
	return m.instance(), h.put(m)
}

// arriving returns the content of the disk of a machine whose disk is not on the storage of this
// node: a new disk in an evacuation, otherwise a copy from the source.
func arriving(ctx context.Context, node, uuid string, from plugins.Arrival) (string, error) {
	if from.Evacuation {
		return newDisk(node, uuid), nil
	}
	if from.Offer != diskFile {
		return "", &plugins.InstanceFault{UUID: uuid, Reason: "the driver of its host is another one"}
	}
	var text []byte
	err := from.Files.ReadFile(ctx, diskFile, 0, func(offset int64, data []byte) error {
		text = slices.Concat(text, make([]byte, offset-int64(len(text))), data)
		return nil
	})
	return string(text), err
}

// newDisk returns the content of a new disk.
func newDisk(node, uuid string) string { return fmt.Sprintf("the disk of %s, made on %s", uuid, node) }

// Leave removes a machine, and its disk unless another node claims it.
func (d *driver) Leave(_ context.Context, node, uuid string) error {
	return d.end(node, uuid, func(s storage) error { return s.release(uuid, node) })
}
