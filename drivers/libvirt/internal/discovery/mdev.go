// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/machine"
)

// MdevParent is a device that can create mediated devices.
type MdevParent struct {
	// Name is the PCI address, or the name of a device of another kind (mtty, matrix).
	Name string
	// Address is nil if it is no PCI device.
	Address *machine.Address
	// Subsystem is the class or bus of a device that is no PCI device: mtty.
	Subsystem string
	Types     []machine.MdevType
	// Others are the types that are not wanted, by their IDs.
	Others []string
	// Mdevs are the mediated devices that exist. The kernel does not know devices that are only
	// defined.
	Mdevs []machine.Mdev
	// Functions and Problem are those of [machine.MdevParent].
	Functions []machine.VGPUFunction
	Problem   string
}

const (
	mdevBus     = "sys/class/mdev_bus"
	mdevDevices = "sys/bus/mdev/devices"
	typesDir    = "mdev_supported_types"
)

// MdevParents reads the parents, those of their types that are wanted (nil: all), the names of the
// others, and all of their devices.
//
// Asking for available instances is a call into the vendor's driver: of a hundred types a host
// offers one or two.
func (r *Reader) MdevParents(want func(id string) bool) ([]MdevParent, error) {
	names, err := r.root.Names(mdevBus)
	if err != nil && !absent(err) {
		return nil, withHint(err)
	}
	parents := make([]MdevParent, len(names))
	for i, name := range names {
		if parents[i], err = r.parent(name, want); err != nil {
			return nil, withHint(err)
		}
	}
	if err := r.mdevs(parents); err != nil {
		return nil, withHint(err)
	}
	slices.SortFunc(parents, compareParents)
	return parents, nil
}

// compareParents puts PCI devices first.
func compareParents(a, b MdevParent) int {
	return machine.CompareDevices(a.Address, b.Address, a.Name, b.Name)
}

func (r *Reader) parent(name string, want func(string) bool) (MdevParent, error) {
	p := MdevParent{Name: name}
	if a, err := address(name); err == nil {
		p.Address = &a
	}
	where, err := r.root.Target(mdevBus + "/" + name)
	if err != nil {
		return p, err
	}
	if p.Address == nil {
		if p.Subsystem, err = r.root.Base(where + "/subsystem"); err != nil {
			return p, err
		}
	}
	err = inDir(r.root, where+"/"+typesDir, func(d *Dir) error {
		ids, err := d.Names(".")
		if err != nil {
			return err
		}
		for _, id := range ids {
			if want != nil && !want(id) {
				p.Others = append(p.Others, id)
				continue
			}
			t, err := readType(d, id)
			if err != nil {
				return err
			}
			p.Types = append(p.Types, t)
		}
		return nil
	})
	return p, err
}

func readType(d *Dir, id string) (t machine.MdevType, err error) {
	t.ID = id
	if t.API, err = line(d, id+"/device_api"); err != nil {
		return t, err
	}
	if t.API == "" {
		return t, malformed(d, id+"/device_api", "", "no API")
	}
	if t.Available, err = value(d, id+"/available_instances", number); err != nil {
		return t, err
	}
	for name, to := range map[string]*string{"name": &t.Name, "description": &t.Description} {
		if *to, err = line(d, id+"/"+name); err != nil && !absent(err) {
			return t, err
		}
	}
	return t, nil
}

// mdevs gives the devices to their parents.
func (r *Reader) mdevs(parents []MdevParent) error {
	uuids, err := r.root.Names(mdevDevices)
	if err != nil && !absent(err) {
		return err
	}
	for _, uuid := range uuids {
		at := mdevDevices + "/" + uuid
		where, err := r.root.Target(at)
		if err != nil {
			return err
		}
		name := path.Base(path.Dir(where))
		i := slices.IndexFunc(parents, func(p MdevParent) bool { return p.Name == name })
		if i < 0 || path.Base(where) != uuid {
			return fmt.Errorf("%s: the link points to %.100q: %w", r.root.Path(at), where, errNoParent)
		}
		m := machine.Mdev{UUID: uuid, Active: true}
		if err := inDir(r.root, where,
			func(d *Dir) (err error) { m.Type, err = readMdevType(d); return err }); err != nil {
			return fmt.Errorf("mediated device %s (%s): %w", uuid, r.root.Path(at), err)
		}
		parents[i].Mdevs = append(parents[i].Mdevs, m)
	}
	return nil
}

func readMdevType(d *Dir) (string, error) {
	kind, err := d.Target("mdev_type")
	if err != nil {
		return "", err
	}
	if path.Base(path.Dir(kind)) != typesDir {
		return "", fmt.Errorf("%s: the link points to %.100q, which is not a mediated device type",
			d.Path("mdev_type"), kind)
	}
	return path.Base(kind), nil
}

var errNoParent = errors.New("its parent is not among those in /sys/class/mdev_bus")
