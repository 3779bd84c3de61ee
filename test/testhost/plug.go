// SPDX-License-Identifier: Apache-2.0

package testhost

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

// Change is the kernel's event of a device that was added or removed.
type Change struct {
	// Action is add or remove.
	Action string
	// Path is where the device is, or was, from the tree's root.
	Path      string
	Subsystem string
	// Properties are NAME=value.
	Properties []string
}

// Plug adds devices to the host and to the tree that it was rendered as, with their interfaces,
// cards and mediated devices. A virtual function is enabled on its physical one, which must be
// there or come before it.
func (h *Host) Plug(t Tree, devices ...Device) ([]Change, error) {
	var changes []Change
	for _, d := range devices {
		if h.Device(d.Address) != nil {
			return changes, fmt.Errorf("plugging %s in: %w", d.Address, fs.ErrExist)
		}
		if pf := h.Device(d.PF); d.PF != "" && pf == nil {
			return changes, fmt.Errorf("plugging %s in: its physical function %s: %w", d.Address, d.PF, fs.ErrNotExist)
		}
		d.VFs = nil // they come after it
		h.Devices = append(h.Devices, d)
		*h = h.sort()
		w := writer{tree: t, made: map[string]bool{}}
		w.device(*h, h.Device(d.Address))
		if w.err != nil {
			return changes, w.err
		}
		at := h.path(h.Device(d.Address))
		if pf := h.Device(d.PF); pf != nil && !slices.Contains(pf.VFs, d.Address) {
			pf.VFs = append(pf.VFs, d.Address)
			if err := t.functions(h.path(pf), append(t.functionsOf(h.path(pf)), at)); err != nil {
				return changes, err
			}
		}
		shown, err := t.shown("add", at)
		if changes = append(changes, shown...); err != nil {
			return changes, err
		}
	}
	return changes, nil
}

// Unplug removes a device from the host and from the tree, with all its dependents: devices
// below a bridge, virtual functions, mediated devices, interfaces.
func (h *Host) Unplug(t Tree, address string) ([]Change, error) {
	at, err := t.DevicePath(address)
	if err != nil {
		return nil, fmt.Errorf("unplugging %s: %w", address, err)
	}
	var changes []Change
	names, err := os.ReadDir(t.Path("sys/bus/pci/devices"))
	if err != nil {
		return nil, err
	}
	functions := t.functionsOf(at)
	for _, n := range names {
		below, err := t.DevicePath(n.Name())
		if err != nil || !strings.HasPrefix(below, at+"/") && !slices.Contains(functions, below) {
			continue // it may have gone with an earlier one
		}
		more, err := h.Unplug(t, n.Name())
		if changes = append(changes, more...); err != nil {
			return changes, err
		}
	}
	shown, err := t.shown("remove", at)
	if err != nil {
		return changes, err
	}
	slices.Reverse(shown) // what hangs on the device goes before it
	changes = append(changes, shown...)
	if pf, err := t.resolve(at + "/physfn"); err == nil {
		left := slices.DeleteFunc(t.functionsOf(pf), func(vf string) bool { return vf == at })
		if err := t.functions(pf, left); err != nil {
			return changes, err
		}
	}
	h.forget(address)
	return changes, t.erase(at, address)
}

func (h *Host) forget(address string) {
	h.Devices = slices.DeleteFunc(h.Devices, func(d Device) bool { return d.Address == address })
	for i := range h.Devices {
		h.Devices[i].VFs = slices.DeleteFunc(h.Devices[i].VFs, func(vf string) bool { return vf == address })
	}
}

// erase removes a device's directory and the links to what is in it.
func (t Tree) erase(at, address string) error {
	links := []string{"sys/bus/pci/devices/" + address, "sys/class/mdev_bus/" + address}
	if group, err := t.resolve(at + "/iommu_group"); err == nil {
		links = append(links, group+"/devices/"+address)
	}
	for _, dir := range []string{"sys/class/net", "sys/class/drm", "sys/bus/mdev/devices"} {
		entries, err := os.ReadDir(t.Path(dir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, e := range entries {
			to, err := t.resolve(dir + "/" + e.Name())
			switch {
			case err != nil || !strings.HasPrefix(to, at+"/"):
			case dir == "sys/bus/mdev/devices":
				if _, err := t.RemoveMdev(e.Name()); err != nil {
					return err
				}
			default:
				links = append(links, dir+"/"+e.Name())
			}
		}
	}
	for _, name := range append(links, at) {
		if err := t.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// shown are the device and its dependents, as in the kernel's events.
func (t Tree) shown(action, at string) ([]Change, error) {
	text, err := t.Read(at + "/uevent")
	if err != nil {
		return nil, err
	}
	changes := []Change{{action, at, "pci", strings.Fields(text)}}
	for _, kind := range []struct{ subsystem, pattern string }{
		{"net", "net/*"}, {"net", "virtio*/net/*"}, {"drm", "drm/*"}, {"mdev", "*/mdev_type"},
	} {
		found, err := fs.Glob(os.DirFS(t.Path(at)), kind.pattern)
		if err != nil {
			return nil, err
		}
		for _, name := range found {
			name = at + "/" + strings.TrimSuffix(name, "/mdev_type")
			text, err := t.Read(name + "/uevent")
			if err != nil {
				return nil, err
			}
			changes = append(changes, Change{action, name, kind.subsystem, strings.Fields(text)})
		}
	}
	return changes, nil
}

// functionsOf are the enabled virtual functions of a device, in order; none of one without.
func (t Tree) functionsOf(pf string) (functions []string) {
	for i := 0; ; i++ {
		vf, err := t.resolve(fmt.Sprintf("%s/virtfn%d", pf, i))
		if err != nil {
			return functions
		}
		functions = append(functions, vf)
	}
}

// functions enables these virtual functions and no others.
func (t Tree) functions(pf string, functions []string) error {
	for i := range t.functionsOf(pf) {
		if err := t.Remove(fmt.Sprintf("%s/virtfn%d", pf, i)); err != nil {
			return err
		}
	}
	for i, vf := range functions {
		if err := t.Link(fmt.Sprintf("%s/virtfn%d", pf, i), vf); err != nil {
			return err
		}
	}
	return t.Write(pf+"/sriov_numvfs", fmt.Sprintf("%d\n", len(functions)))
}

// Bind gives a PCI device to another driver, or to none if that is "".
func (t Tree) Bind(address, driver string) error {
	at, err := t.DevicePath(address)
	if err != nil {
		return err
	}
	if err := t.Remove(at + "/driver"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if driver == "" {
		return nil
	}
	w := writer{tree: t, made: map[string]bool{}}
	w.driver(path.Clean(at), driver)
	return w.err
}
