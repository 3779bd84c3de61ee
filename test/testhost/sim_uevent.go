// SPDX-License-Identifier: Apache-2.0

package testhost

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path"
	"strings"
	"syscall"
)

// Uevent is an event of a device, as udev sends it.
type Uevent struct {
	// Action is add, remove or change.
	Action string
	// Path is where the device is from the tree's root: sys/devices/….
	Path      string
	Subsystem string
	// Properties are NAME=value.
	Properties []string `json:",omitempty"`
}

// Uevent sends an event to the daemon. It returns when the event is sent, not when it is handled; a
// daemon that does not run misses it.
func (s *Sim) Uevent(ctx context.Context, e Uevent) error {
	return s.order(ctx, order{Do: "uevent", Uevent: &e})
}

// PCI returns an event of a PCI device in the tree, with the properties there.
func (s *Sim) PCI(ctx context.Context, action, address string) error {
	at, err := s.tree.DevicePath(address)
	if err != nil {
		return err
	}
	text, err := s.tree.Read(at + "/uevent")
	if err != nil {
		return err
	}
	return s.Uevent(ctx, Uevent{Action: action, Path: at, Subsystem: "pci", Properties: strings.Fields(text)})
}

// Plug adds devices to the host, and sends their events: a virtual function after its physical one.
func (s *Sim) Plug(ctx context.Context, devices ...Device) error {
	return s.replug(ctx, func() ([]Change, error) { return s.host.Plug(s.tree, devices...) })
}

// Unplug removes a PCI device with all its dependents, and sends their events.
func (s *Sim) Unplug(ctx context.Context, address string) error {
	return s.replug(ctx, func() ([]Change, error) { return s.host.Unplug(s.tree, address) })
}

func (s *Sim) replug(ctx context.Context, change func() ([]Change, error)) error {
	s.plugging.Lock()
	defer s.plugging.Unlock()
	changes, err := change()
	for _, c := range changes {
		err = errors.Join(err, s.Uevent(ctx, Uevent(c)))
	}
	return err
}

// AddMdev makes a mediated device as a program other than libvirt would, and sends its event. The
// parent is a PCI address or a name.
func (s *Sim) AddMdev(ctx context.Context, parent, mdevType, uuid string, iommuGroup int) error {
	at, err := s.tree.AddMdev(parent, mdevType, uuid, iommuGroup)
	if err != nil {
		return err
	}
	return s.Uevent(ctx, Uevent{Action: "add", Path: at, Subsystem: "mdev"})
}

// RemoveMdev removes a mediated device, and sends its event.
func (s *Sim) RemoveMdev(ctx context.Context, uuid string) error {
	at, err := s.tree.RemoveMdev(uuid)
	if err != nil {
		return err
	}
	return s.Uevent(ctx, Uevent{Action: "remove", Path: at, Subsystem: "mdev"})
}

// message is the event in the form of libudev's monitor: a header of 40 bytes, then properties that
// end with zero bytes. See struct monitor_netlink_header of systemd's
// src/libsystemd/sd-device/device-monitor.c.
func (u Uevent) message() []byte {
	devpath := "/" + strings.TrimPrefix(path.Clean(strings.TrimPrefix(u.Path, "/")), "sys/")
	properties := append([]string{"ACTION=" + u.Action, "DEVPATH=" + devpath, "SUBSYSTEM=" + u.Subsystem, "SEQNUM=1"},
		u.Properties...)
	body := strings.Join(properties, "\x00") + "\x00"
	const size = 40
	header := make([]byte, size, size+len(body))
	copy(header, "libudev\x00")
	binary.BigEndian.PutUint32(header[8:], 0xfeedcafe)
	binary.NativeEndian.PutUint32(header[12:], size)
	binary.NativeEndian.PutUint32(header[16:], size)
	binary.NativeEndian.PutUint32(header[20:], uint32(len(body)))
	return append(header, body...)
}

// send broadcasts the event in this process's network namespace to those that listen to udev.
func (u Uevent) send() (err error) {
	const udev = 2 // the group of messages that udev has processed
	fd, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC, syscall.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return fmt.Errorf("sending an event: %w", err)
	}
	defer func() { err = errors.Join(err, syscall.Close(fd)) }()
	err = syscall.Sendto(fd, u.message(), 0, &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK, Groups: udev})
	if err != nil {
		return fmt.Errorf("sending an event: %w", err)
	}
	return nil
}
