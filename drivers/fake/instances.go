// SPDX-License-Identifier: Apache-2.0

package fake

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/compute-agent/compute-agent/plugins"
	"github.com/compute-agent/compute-agent/providertree"
)

// management is the key instances, which lets the driver create and remove machines.
type management struct {
	// Images are the existing images; none: any.
	Images []string `json:"images" toml:"images"`
	// Crash are names of instances that crash when they run.
	Crash []string `json:"crash" toml:"crash"`
	// Hold is the path of a file: while it exists, a Spawn waits between its two steps.
	Hold string `json:"hold" toml:"hold"`
	// Storage is a directory for the disks, which several hosts may share; "": they do not.
	Storage storage `json:"storage" toml:"storage"`
	// MaxDisk is how many bytes a disk that is copied may have; 0: any number.
	MaxDisk int64 `json:"max_disk" toml:"max_disk"`
}

// pollInterval is how often files are checked that other processes can change: machines and
// scenario.
const pollInterval = time.Second

// manager returns the configuration and the hypervisor for a call about instances of a node, or why
// the node has no instances.
func (d *driver) manager(node string) (config, *hypervisor, error) {
	cfg, _, err := d.current()
	switch {
	case err != nil:
		return cfg, nil, err
	case cfg.Instances == nil:
		return cfg, nil, fmt.Errorf("%w: instances is not configured", plugins.ErrUnsupported)
	case !cfg.has(node):
		return cfg, nil, fmt.Errorf("node %q is not configured", node)
	}
	return cfg, d.hypervisor(), nil
}

// names returns the names of all nodes.
func (c config) names() []string {
	out := make([]string, 0, len(c.Nodes))
	for _, n := range c.Nodes {
		out = append(out, n.Name)
	}
	return out
}

func (c config) has(node string) bool { return c.node(node).Name != "" }

// node returns the node with a name, or the zero provider.
func (c config) node(name string) provider {
	for _, n := range c.Nodes {
		if n.Name == name {
			return n
		}
	}
	return provider{}
}

// Instances lists the machines of a node.
func (d *driver) Instances(_ context.Context, node string) ([]plugins.Instance, error) {
	cfg, h, err := d.manager(node)
	if err != nil {
		return nil, err
	}
	if err := h.fail(cfg.Instances.Crash); err != nil {
		return nil, err
	}
	machines, err := h.list()
	if err != nil {
		return nil, err
	}
	out := []plugins.Instance{}
	for _, m := range machines {
		if m.Node == node {
			out = append(out, m.instance())
		}
	}
	return out, nil
}

// Spawn creates a machine in two steps (a real hypervisor has more): it defines and then starts it.
// It can be interrupted between them; the next Spawn continues from what it finds.
func (d *driver) Spawn(
	ctx context.Context, node string, spec plugins.InstanceSpec, tree *providertree.Tree,
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
	}
	if reason := cfg.refusal(spec, tree); reason != "" {
		if there && m.Node == node { // remove what an earlier attempt left
			err = h.remove(spec.UUID)
		}
		return plugins.Instance{}, errors.Join(err, &plugins.InstanceFault{UUID: spec.UUID, Reason: reason})
	}
	switch {
	case there && m.Node != node:
		return plugins.Instance{},
			&plugins.InstanceFault{UUID: spec.UUID, Reason: "there is an instance of this uuid on another node"}
	case !there:
		if m, err = cfg.define(h, node, spec, tree); err != nil {
			return plugins.Instance{}, err
		}
	}
	if err := waitWhile(ctx, cfg.Instances.Hold); err != nil {
		return plugins.Instance{}, err
	}
	m.Disk = newDisk(node, m.UUID)
	if err := cfg.Instances.Storage.put(m.UUID, node, m.Disk); err != nil {
		return plugins.Instance{}, err
	}
	m.Power, m.Complete = plugins.PowerRunning, true
	m.writeBoot()
	log := plugins.Logger(ctx)
	log.Info().Str("instance", m.UUID).Str("node", node).Bool("resumed", there).Msg("Created the instance.")
	return m.instance(), h.put(m)
}

// CheckSpawn reports what keeps Spawn from creating a machine.
func (d *driver) CheckSpawn(_ context.Context, node string, spec plugins.InstanceSpec, tree *providertree.Tree) error {
	cfg, _, err := d.manager(node)
	if err != nil {
		return err
	}
	if reason := cfg.refusal(spec, tree); reason != "" {
		return &plugins.InstanceFault{UUID: spec.UUID, Reason: reason}
	}
	return nil
}

// Restore creates a machine again over its disk in the storage, and leaves it off. Without a
// storage the disk went with the machine.
func (d *driver) Restore(
	ctx context.Context, node string, spec plugins.InstanceSpec, tree *providertree.Tree,
) (plugins.Instance, error) {
	cfg, h, err := d.manager(node)
	if err != nil {
		return plugins.Instance{}, err
	}
	m, there, err := h.find(spec.UUID)
	switch {
	case err != nil:
		return plugins.Instance{}, err
	case there && m.Node == node:
		return m.instance(), nil
	case there:
		return plugins.Instance{},
			&plugins.InstanceFault{UUID: spec.UUID, Reason: "there is an instance of this uuid on another node"}
	}
	reason := cfg.refusal(spec, tree)
	if reason == "" && !cfg.Instances.Storage.has(spec.UUID, node) {
		reason = "its disk is not on its host"
	}
	if reason != "" {
		return plugins.Instance{}, &plugins.InstanceFault{UUID: spec.UUID, Reason: reason}
	}
	if m, err = cfg.define(h, node, spec, tree); err != nil {
		return plugins.Instance{}, err
	}
	if m.Disk, err = cfg.Instances.Storage.text(m); err != nil {
		return plugins.Instance{}, err
	}
	m.Complete = true
	log := plugins.Logger(ctx)
	log.Info().Str("instance", m.UUID).Str("node", node).Msg("Created the instance again over its disk.")
	return m.instance(), h.put(m)
}

// refusal returns why a machine cannot be created on this node, or "".
func (c config) refusal(spec plugins.InstanceSpec, tree *providertree.Tree) string {
	if !providertree.IsCanonicalUUID(spec.UUID) { // it becomes the name of a file
		return "its uuid is not one in lower case with hyphens"
	}
	if c.isForeign(spec.UUID) {
		return "there is a guest of this uuid already"
	}
	if c.Instances.Images != nil && spec.Image != "" && !slices.Contains(c.Instances.Images, spec.Image) {
		return fmt.Sprintf("there is no image %q", spec.Image)
	}
	for _, uuid := range slices.Sorted(maps.Keys(spec.Allocations)) {
		for _, class := range slices.Sorted(maps.Keys(spec.Allocations[uuid])) {
			if _, ok := tree.Inventory(uuid, class); !ok {
				return fmt.Sprintf("%s is allocated from resource provider %s, which has no inventory of it",
					class, uuid)
			}
		}
	}
	return ""
}

// isForeign reports whether a guest is not an instance.
func (c config) isForeign(uuid string) bool {
	return slices.ContainsFunc(c.GuestList, func(g guest) bool { return g.UUID == uuid })
}

// define creates a machine without starting it.
func (c config) define(
	h *hypervisor, node string, spec plugins.InstanceSpec, tree *providertree.Tree,
) (machine, error) {
	h.placing.Lock()
	defer h.placing.Unlock()
	others, err := h.list()
	if err != nil {
		return machine{}, err
	}
	m := machine{
		UUID: spec.UUID, Node: node, Name: spec.Name, ProjectID: spec.ProjectID, UserID: spec.UserID,
		Power:   plugins.PowerShutdown,
		KeyName: spec.KeyName, PublicKey: spec.PublicKey,
		Shares: c.chooseDevices(tree, node, spec.Allocations, others),
	}
	return m, h.put(m)
}

// waitWhile waits as long as a file exists.
func waitWhile(ctx context.Context, name string) error {
	for name != "" {
		if _, err := os.Stat(name); err != nil {
			break
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return ctx.Err()
}

// Destroy removes a machine, complete or not.
func (d *driver) Destroy(_ context.Context, node, uuid string) error {
	return d.end(node, uuid, func(s storage) error { return s.remove(uuid) })
}

// end removes a machine, and its disk in some way.
func (d *driver) end(node, uuid string, disk func(storage) error) error {
	cfg, h, err := d.manager(node)
	if err != nil {
		return err
	}
	if cfg.isForeign(uuid) {
		return &plugins.InstanceFault{UUID: uuid, Reason: "it is an unmanaged guest"}
	}
	m, there, err := h.find(uuid)
	if err != nil || !there || m.Node != node {
		return err
	}
	if err := disk(cfg.Instances.Storage); err != nil {
		return err
	}
	return h.remove(uuid)
}

// SetPower starts or stops a machine. Machines stop at once, so hard makes no difference.
func (d *driver) SetPower(
	_ context.Context, node, uuid string, to plugins.PowerState, _ bool,
) (plugins.Instance, error) {
	_, h, err := d.manager(node)
	if err != nil {
		return plugins.Instance{}, err
	}
	m, there, err := h.find(uuid)
	switch {
	case err != nil:
		return plugins.Instance{}, err
	case !there || m.Node != node:
		return plugins.Instance{}, &plugins.InstanceNotFound{UUID: uuid}
	case to != plugins.PowerRunning && to != plugins.PowerShutdown:
		return plugins.Instance{},
			&plugins.InstanceFault{UUID: uuid, Reason: fmt.Sprintf("it cannot be brought to the power state %s", to)}
	case m.Power == to:
		return m.instance(), nil
	}
	m.Power = to
	if to == plugins.PowerRunning {
		m.writeBoot()
	} else {
		m.writeHalt()
	}
	m.Complete = m.Complete || to == plugins.PowerRunning
	return m.instance(), h.put(m)
}

// WatchInstances compares the machines with their former state whenever this process changes one,
// and every second, because their files can be edited or removed.
func (d *driver) WatchInstances(ctx context.Context, changed func(node, uuid string)) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	h := d.hypervisor()
	before, err := h.states()
	for {
		configured, powerChanged := d.change(), h.change()
		d.crash(h)
		if now, unreadable := h.states(); unreadable == nil {
			if err != nil { // the former state is not known
				changed("", "")
			} else {
				reportDifferences(before, now, changed)
			}
			before, err = now, nil
		}
		select {
		case <-powerChanged:
		case <-configured:
			if next := d.hypervisor(); next != h {
				h = next
				before, err = h.states()
			}
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// crash crashes the configured machines; errors are retried the next time.
func (d *driver) crash(h *hypervisor) {
	if cfg, _, err := d.current(); err == nil && cfg.Instances != nil {
		_ = h.fail(cfg.Instances.Crash)
	}
}

// state is the part of a machine that can change.
type state struct {
	node  string
	power plugins.PowerState
}

func (h *hypervisor) states() (map[string]state, error) {
	machines, err := h.list()
	if err != nil {
		return nil, err
	}
	out := map[string]state{}
	for _, m := range machines {
		out[m.UUID] = state{m.Node, m.Power}
	}
	return out, nil
}

// reportDifferences reports each instance that differs.
func reportDifferences(before, now map[string]state, changed func(node, uuid string)) {
	for uuid, was := range before {
		if is, still := now[uuid]; !still || is.node != was.node {
			changed(was.node, uuid)
		}
	}
	for uuid, is := range now {
		if was, known := before[uuid]; !known || was != is {
			changed(is.node, uuid)
		}
	}
}
