// SPDX-License-Identifier: Apache-2.0

//go:build cgo && libvirt_dlopen

package hypervisor

import (
	"errors"
	"fmt"

	"libvirt.org/go/libvirt"
)

func isCode(err error, code libvirt.ErrorNumber) bool {
	var e libvirt.Error
	return errors.As(err, &e) && e.Code == code
}

// errorsByCode has our error for each code of libvirt that a caller decides on.
var errorsByCode = map[libvirt.ErrorNumber]error{
	libvirt.ERR_NO_SUPPORT:            ErrUnsupported,
	libvirt.ERR_CONFIG_UNSUPPORTED:    ErrUnsupported,
	libvirt.ERR_OPERATION_DENIED:      ErrReadOnly,
	libvirt.ERR_AUTH_FAILED:           ErrReadOnly,
	libvirt.ERR_AUTH_CANCELLED:        ErrReadOnly,
	libvirt.ERR_AUTH_UNAVAILABLE:      ErrReadOnly,
	libvirt.ERR_ACCESS_DENIED:         ErrReadOnly,
	libvirt.ERR_NO_DOMAIN:             ErrNotFound,
	libvirt.ERR_NO_NODE_DEVICE:        ErrNotFound,
	libvirt.ERR_OPERATION_INVALID:     ErrState,
	libvirt.ERR_XML_ERROR:             ErrRefused,
	libvirt.ERR_XML_DETAIL:            ErrRefused,
	libvirt.ERR_XML_INVALID_SCHEMA:    ErrRefused,
	libvirt.ERR_NO_OS:                 ErrRefused,
	libvirt.ERR_OS_TYPE:               ErrRefused,
	libvirt.ERR_NO_KERNEL:             ErrRefused,
	libvirt.ERR_OPERATION_UNSUPPORTED: ErrUnsupported,
	libvirt.ERR_ARGUMENT_UNSUPPORTED:  ErrUnsupported,
}

func unsupported(err error) bool { return errors.Is(translate(err), ErrUnsupported) }

// translate adds to an error of libvirt which one it is.
func translate(err error) error {
	var e libvirt.Error
	if !errors.As(err, &e) {
		return err
	}
	if kind, ok := errorsByCode[e.Code]; ok {
		return fmt.Errorf("%w: %w", kind, err)
	}
	if e.Domain == libvirt.FROM_RPC && e.Code == libvirt.ERR_INTERNAL_ERROR { // "client socket is closed"
		return fmt.Errorf("%w: %w", ErrBroken, err)
	}
	return err
}

// describeRefusal translates an error of a call that takes a description: what this host cannot do
// is wrong with the description.
func describeRefusal(err error) error {
	if isCode(err, libvirt.ERR_CONFIG_UNSUPPORTED) {
		return fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return translate(err)
}
