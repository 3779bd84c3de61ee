// SPDX-License-Identifier: Apache-2.0

package sysfs

import (
	"errors"
	"io/fs"
)

// HostError is why the reader cannot say what the host is: which file, what is in it, why that cannot be, and what to do. It wraps the
// cause.
type HostError struct{ cause error }

// Error has all of it.
func (e *HostError) Error() string { return e.cause.Error() + ". " + e.Remedy() }

// Unwrap is the cause.
func (e *HostError) Unwrap() error { return e.cause }

// Remedy is what to do, as a sentence.
func (e *HostError) Remedy() string {
	switch {
	case errors.Is(e.cause, fs.ErrPermission):
		return "Let the agent's user read this file, or run the agent as another user; reading is all that it needs."
	case absent(e.cause):
		return "While devices come and go this passes by itself. If it stays, see that the agent is shown all of the host's /sys and /proc " +
			"(containers hide parts of them), and that the option chroot, where it is set, names the directory that has them."
	}
	return "While devices come and go this passes by itself. If it stays, the kernel or the driver of this device is at fault: compare the file " +
		"with the kernel's log, and load the driver anew or restart the host. Until then nothing about this host's hardware is reported anew."
}

// remedied makes an error a HostError, once.
func remedied(err error) error {
	var already *HostError
	if err == nil || errors.As(err, &already) {
		return err
	}
	return &HostError{err}
}
