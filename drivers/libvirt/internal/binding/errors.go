// SPDX-License-Identifier: Apache-2.0

//go:build cgo && libvirt_dlopen

package binding

import (
	"errors"
	"fmt"

	"libvirt.org/go/libvirt"

	"github.com/compute-agent/compute-agent/drivers/libvirt/internal/hypervisor"
)

func is(err error, code libvirt.ErrorNumber) bool {
	var e libvirt.Error
	return errors.As(err, &e) && e.Code == code
}

// codes are those of libvirt's errors that a caller decides on.
var codes = map[libvirt.ErrorNumber]error{
	libvirt.ERR_NO_SUPPORT:            hypervisor.ErrUnsupported,
	libvirt.ERR_CONFIG_UNSUPPORTED:    hypervisor.ErrUnsupported,
	libvirt.ERR_OPERATION_DENIED:      hypervisor.ErrReadOnly,
	libvirt.ERR_AUTH_FAILED:           hypervisor.ErrReadOnly,
	libvirt.ERR_AUTH_CANCELLED:        hypervisor.ErrReadOnly,
	libvirt.ERR_AUTH_UNAVAILABLE:      hypervisor.ErrReadOnly,
	libvirt.ERR_ACCESS_DENIED:         hypervisor.ErrReadOnly,
	libvirt.ERR_NO_DOMAIN:             hypervisor.ErrNotFound,
	libvirt.ERR_NO_NODE_DEVICE:        hypervisor.ErrNotFound,
	libvirt.ERR_OPERATION_INVALID:     hypervisor.ErrState,
	libvirt.ERR_XML_ERROR:             hypervisor.ErrRefused,
	libvirt.ERR_XML_DETAIL:            hypervisor.ErrRefused,
	libvirt.ERR_XML_INVALID_SCHEMA:    hypervisor.ErrRefused,
	libvirt.ERR_NO_OS:                 hypervisor.ErrRefused,
	libvirt.ERR_OS_TYPE:               hypervisor.ErrRefused,
	libvirt.ERR_NO_KERNEL:             hypervisor.ErrRefused,
	libvirt.ERR_OPERATION_UNSUPPORTED: hypervisor.ErrUnsupported,
	libvirt.ERR_ARGUMENT_UNSUPPORTED:  hypervisor.ErrUnsupported,
}

func unsupported(err error) bool { return errors.Is(translate(err), hypervisor.ErrUnsupported) }

// translate adds to an error of libvirt which one it is.
func translate(err error) error {
	var e libvirt.Error
	if !errors.As(err, &e) {
		return err
	}
	if kind, ok := codes[e.Code]; ok {
		return fmt.Errorf("%w: %w", kind, err)
	}
	return err
}

// refused translates an error of a call that takes a description: what this host cannot do is wrong
// with the description.
func refused(err error) error {
	if is(err, libvirt.ERR_CONFIG_UNSUPPORTED) {
		return fmt.Errorf("%w: %w", hypervisor.ErrRefused, err)
	}
	return translate(err)
}
