// SPDX-License-Identifier: Apache-2.0

//go:build cgo && libvirt_dlopen

// Command compute-driver-libvirt is the plugin process of the libvirt driver. It is built with cgo
// and the tag libvirt_dlopen (make build does); it loads libvirt's library when it runs.
package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/compute-agent/compute-agent/drivers/libvirt"
	"github.com/compute-agent/compute-agent/plugins"
)

func main() {
	var command func(args []string) error
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case libvirt.DevicesFlag:
			command = func(args []string) error { return libvirt.Devices(os.Stdout, args) }
		case libvirt.DomainCapabilitiesFlag:
			command = libvirt.SaveDomainCapabilities
		}
	}
	if command == nil {
		// All may enter directories of instances, and the sandbox refuses chmod. The driver makes
		// no executable files.
		unix.Umask(unix.Umask(0o077) &^ 0o011)
		plugins.Serve(libvirt.New())
		return
	}
	if err := command(os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "compute-driver-libvirt:", err)
		os.Exit(1)
	}
}
