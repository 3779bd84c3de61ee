// SPDX-License-Identifier: Apache-2.0

package instances

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/domain"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hypervisor"
	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/qcow2"
	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// offer is what the source of a move sends to the destination, as JSON. The destination must check
// it, because it comes from another host.
type offer struct {
	// Probe is a file in the instance's directory, by which shared storage is found out.
	Probe string `json:"probe"`
	// Machine is the machine type with its version.
	Machine string `json:"machine,omitempty"`
	// Files are the disks in the instance's directory.
	Files []offeredFile `json:"files"`
}

type offeredFile struct {
	Name   string `json:"name"`
	Format string `json:"format"`
	// Size is the file's, Used what it takes of its file system, in bytes.
	Size int64 `json:"size"`
	Used int64 `json:"used"`
}

// movable are the files that a move is about: an offer has no others.
var movable = []string{rootDisk, ephemeralDisk, swapDisk, seedDisk}

// readOffer reads and checks the offer of another host. A layer has an image that it is over.
func (j *job) readOffer(text string, layered bool) (offer, error) {
	var out offer
	err := json.Unmarshal([]byte(text), &out)
	switch {
	case err != nil:
	case !probeName.MatchString(out.Probe):
		err = errors.New("it has no probe")
	case out.Machine != "" && !domain.IsMachine(out.Machine):
		err = fmt.Errorf("%.60q is not a machine type", out.Machine)
	}
	seen := map[string]bool{}
	for _, f := range out.Files {
		switch {
		case !slices.Contains(movable, f.Name) || seen[f.Name]:
			err = cmp.Or(err, fmt.Errorf("%.60q is not the name of a disk, or is there twice", f.Name))
		// others would lean on anything
		case f.Format != rawType && (f.Format != qcow2Type || f.Name != rootDisk || !layered):
			err = cmp.Or(err, fmt.Errorf("its %s is in the format %.60q", f.Name, f.Format))
		case f.Size < 0 || f.Size > maxDiskGB<<30+1<<30 || f.Used < 0:
			err = cmp.Or(err, fmt.Errorf("its %s has %d bytes", f.Name, f.Size))
		}
		seen[f.Name] = true
	}
	if err != nil {
		return offer{}, (&failure{reason: "the offer of its host cannot be used",
			err: fmt.Errorf("the offer of the source: %w", err)}).fault(j.uuid)
	}
	return out, nil
}

// Depart shuts an instance down that is to be moved, as [plugins.InstanceMover] says.
func (m *Manager) Depart(ctx context.Context, node, uuid string) (string, error) {
	j, err := m.begin(ctx, node, uuid)
	if err != nil {
		return "", err
	}
	text, err := j.depart(ctx)
	if err == nil {
		m.power.release(uuid)
	}
	m.power.reconcileLater(ctx)
	return text, j.agentError(err)
}

func (j *job) depart(ctx context.Context) (string, error) {
	g, err := j.findManaged(ctx)
	if err != nil {
		return "", err
	}
	d, err := j.directory(ctx)
	if err != nil {
		return "", err
	}
	board, err := domain.ReadBoard([]byte(g.XML))
	if err != nil {
		return "", err
	}
	if board.TPM {
		return "", j.fault("it has a virtual TPM, whose state only its host has")
	}
	out := offer{Machine: board.Machine}
	for _, disk := range g.parsed.Disks {
		if filepath.Dir(disk.Source) != filepath.Join(d.path, d.name) ||
			!slices.Contains(movable, filepath.Base(disk.Source)) {
			return "", j.fault("it has a disk that the driver did not create")
		}
		out.Files = append(out.Files,
			offeredFile{Name: filepath.Base(disk.Source), Format: cmp.Or(disk.Format, rawType)})
	}
	if g.active() {
		if err := j.shutDown(ctx, g); err != nil {
			return "", err
		}
	}
	j.begun = true
	err = j.callQuick(ctx, "keeping its domain from starting with the host",
		func(c hypervisor.Conn) error { return c.SetDomainAutostart(j.uuid, false) })
	if err != nil && !errors.Is(err, hypervisor.ErrUnsupported) {
		return "", err
	}
	for i := range out.Files {
		info, err := os.Stat(d.file(out.Files[i].Name))
		if err != nil {
			return "", fmt.Errorf("instance %s: looking at its disks: %w", j.uuid, err)
		}
		out.Files[i].Size = info.Size()
		if stat, ok := info.Sys().(*syscall.Stat_t); ok {
			out.Files[i].Used = stat.Blocks * 512
		}
	}
	if err := d.make(); err != nil { // an instance may have no disks
		return "", err
	}
	if err := d.claim(j.node); err != nil {
		return "", err
	}
	if out.Probe, err = d.probe(); err != nil {
		return "", err
	}
	text, err := json.Marshal(out)
	return string(text), err
}

// Arrive creates an instance that comes from another host, as [plugins.InstanceMover] says.
func (m *Manager) Arrive(
	ctx context.Context, node string, spec plugins.InstanceSpec, tree *providertree.Tree, from plugins.Arrival,
) (plugins.Instance, error) {
	j, err := m.beginMove(ctx, node, spec.UUID)
	if err != nil {
		return plugins.Instance{}, err
	}
	is, err := j.arrive(ctx, spec, tree, from)
	m.forget(spec.UUID)
	if err != nil {
		m.power.reconcileLater(ctx)
	}
	return is, j.agentError(err)
}

func (j *job) arrive(
	ctx context.Context, spec plugins.InstanceSpec, tree *providertree.Tree, from plugins.Arrival,
) (plugins.Instance, error) {
	if from.Node == j.node {
		return plugins.Instance{}, j.fault("it comes from a host whose node has the same name")
	}
	g, err := j.findOwn(ctx)
	if err != nil {
		return plugins.Instance{}, err
	}
	if g.exists && g.active() {
		return g.instance(), nil
	}
	d, err := j.directory(ctx)
	if err != nil {
		return plugins.Instance{}, err
	}
	resumed := g.exists
	if g, err = j.defineArriving(ctx, spec, tree, from, g, d); err != nil {
		return plugins.Instance{}, j.abortArrival(ctx, d, resumed, err)
	}
	d.markRan(j.log) // it ran elsewhere
	j.log.Info().Str("domain", g.Name).Str("from", from.Node).Bool("resumed", resumed).
		Msg("The instance arrived from another host.")
	return g.instance(), nil
}

// defineArriving defines the domain of an instance over its disks, wherever those are.
func (j *job) defineArriving(
	ctx context.Context, spec plugins.InstanceSpec, tree *providertree.Tree, from plugins.Arrival, g guest, d directory,
) (guest, error) {
	hardware, err := j.hardware(spec)
	if err != nil {
		return guest{}, err
	}
	if hardware.TPMVersion != "" {
		return guest{}, j.fault("it has a virtual TPM, whose state only its former host has")
	}
	var off offer
	shared := false
	if from.Evacuation {
		shared, err = d.onSharedStorage(from.Node, g.exists)
	} else if off, err = j.readOffer(from.Offer, spec.Image != ""); err == nil {
		shared = d.hasProbe(off.Probe)
		hardware.Machine = cmp.Or(off.Machine, hardware.Machine)
	}
	if err != nil {
		return guest{}, err
	}
	disks, err := j.arrivingDisks(spec, from, off, d, shared)
	if err != nil {
		return guest{}, err
	}
	if shared {
		j.begun, j.keep = true, true
		if err := errors.Join(d.claim(from.Node), d.claim(j.node)); err != nil {
			return guest{}, err
		}
	} else if !g.exists {
		if err := j.checkVacant(d); err != nil {
			return guest{}, err
		}
	}
	if !g.exists {
		if g, err = j.define(ctx, spec, hardware, tree, d, disks); err != nil {
			return guest{}, err
		}
	}
	if !shared {
		j.begun = true
		if err := d.make(); err != nil {
			return guest{}, err
		}
		if err := d.claim(j.node); err != nil {
			return guest{}, err
		}
		if err := d.fill(ctx, disks); err != nil {
			var fault *plugins.InstanceFault
			if ctx.Err() != nil || errors.As(err, new(*sourceError)) || errors.As(err, &fault) {
				return guest{}, err
			}
			return guest{}, &failure{reason: diskReason(err), err: err}
		}
	}
	return g, nil
}

// onSharedStorage reports whether the disks of a host that is down are here, on shared storage: the
// directory has its claim, or was made before there were claims, and not by this host.
func (d directory) onSharedStorage(node string, defined bool) (bool, error) {
	d.refresh()
	if !d.exists() {
		return false, nil
	}
	if d.claimedBy(node) {
		return true, nil
	}
	claimed, err := d.claimed()
	return !claimed && !defined && err == nil, err
}

// checkVacant returns a fault unless nothing is where the directory of an instance is to be made.
// What is there may be the source's, if only the probe does not show: it is not removed.
func (j *job) checkVacant(d directory) error {
	claimed, err := d.claimed()
	switch {
	case err != nil:
		return err
	// its domain was removed from outside
	case !d.exists(), claimed && d.claimedBy(j.node) && d.release(j.node, false) == nil && !d.exists():
		return nil
	}
	return (&failure{
		reason: "the host has disks of it already",
		err: fmt.Errorf("%s exists, and is not the directory of the source: remove it if nothing uses it",
			filepath.Join(d.path, d.name)),
	}).fault(j.uuid)
}

// arrivingDisks are the disks of an instance that arrives. Those on shared storage are used as they
// are, those of an evacuation are made of the image otherwise, and all others are the source's.
func (j *job) arrivingDisks(
	spec plugins.InstanceSpec, from plugins.Arrival, off offer, d directory, shared bool,
) ([]disk, error) {
	if from.Evacuation {
		return j.plan(spec, d)
	}
	var out []disk
	used := int64(0)
	for _, f := range off.Files {
		disk := disk{Disk: domain.Disk{Path: d.file(f.Name), Format: f.Format, ReadOnly: f.Name == seedDisk}}
		if f.Format == qcow2Type {
			image, err := j.image(spec.Image)
			if err != nil {
				return nil, err
			}
			disk.Backing = domain.Backing{Path: image.path, Format: image.format}
		}
		if shared && disk.Backing.Path != "" {
			if err := checkBacking(disk.Path, disk.Backing.Path); err != nil {
				return nil, &failure{reason: "the host has its image elsewhere", err: err}
			}
		}
		if !shared {
			if err := os.Remove(disk.Path + partial); err != nil && !errors.Is(err, fs.ErrNotExist) { // it takes space
				return nil, err
			}
			disk.write = j.copyFrom(from.Files, f, disk.Backing.Path)
			if _, err := os.Lstat(disk.Path); err != nil {
				used += min(f.Used, f.Size+1<<20)
			}
		}
		out = append(out, disk)
	}
	if free, err := freeBytes(d.path); err == nil && used > free {
		return nil, &failure{
			reason: "the host has no space left for its disks",
			err: fmt.Errorf("its disks take %d MiB, and the file system of %s has %d MiB left",
				used>>20, d.path, free>>20),
		}
	}
	return out, nil
}

// checkBacking returns an error unless the backing file of a layer on shared storage is the image
// here, as far as it can be read: the path in it is the source's, and stays so for the way back.
func checkBacking(path, base string) error {
	f, err := os.Open(path)
	if err != nil {
		return nil // it belongs to the emulator's user
	}
	defer func() { _ = f.Close() }()
	former, err := qcow2.Backing(f)
	if err == nil && former != base {
		err = fmt.Errorf(
			"%s is a layer over %s, and the image is %s here: images_path must be the same on hosts that share disks",
			path, former, base)
	}
	return err
}

// freeBytes returns how many bytes the driver's user can still write to a file system.
func freeBytes(path string) (int64, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(path, &s); err != nil {
		return 0, err
	}
	return int64(s.Bavail) * s.Bsize, nil // no file system has 8 EiB
}

// abortArrival is abortSpawn for an instance that cannot arrive: what the source has stays.
func (j *job) abortArrival(ctx context.Context, d directory, resumed bool, err error) error {
	return j.cleanUp(ctx, d, resumed, err, "An instance cannot arrive here. Removing what was created of it.", j.leave,
		"instance %s cannot arrive (%s), and what was created of it cannot be removed: %w")
}

// Leave removes an instance that is on another host, as [plugins.InstanceMover] says.
func (m *Manager) Leave(ctx context.Context, node, uuid string) error {
	j, err := m.beginMove(ctx, node, uuid)
	if err != nil {
		return err
	}
	d, err := j.directory(ctx)
	if err == nil {
		err = j.leave(ctx, d)
	}
	m.forget(uuid)
	if err == nil {
		m.power.release(uuid)
		m.power.reconcileLater(ctx)
	}
	return j.agentError(err)
}

func (j *job) leave(ctx context.Context, d directory) error {
	return j.removeWith(ctx, d, func(used bool) error { return d.release(j.node, used) })
}
