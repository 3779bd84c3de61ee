// SPDX-License-Identifier: Apache-2.0

package hypervisor

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/compute-agent/compute-agent/internal/libvirtd"
)

// Errors of libvirt that a caller decides on. They are wrapped together with libvirt's own words.
var (
	// ErrUnsupported means that the hypervisor driver behind the connection does not know the call.
	ErrUnsupported = errors.New("not supported by this hypervisor driver")
	// ErrNoLibrary means that libvirt's client library could not be loaded.
	ErrNoLibrary = errors.New("libvirt's client library (libvirt.so.0) cannot be loaded")
	// ErrReadOnly means that the call needs write access, which this connection has not.
	ErrReadOnly = errors.New("libvirt allows this with write access only")
	// ErrNotFound means that there is no domain or device of that name.
	ErrNotFound = errors.New("libvirt has no such object")
	// ErrState means that a domain or device is not in a state that allows the call: it runs
	// already, or it does not run. libvirt has the same code for a host that is not in such a state
	// (no cgroups to start guests in), so it pays to look at the domain.
	ErrState = errors.New("its state does not allow this")
	// ErrInUse means that another user has the console of a domain.
	ErrInUse = errors.New("it is in use")
	// ErrBroken means that the connection, or that of the daemon to another one which it asks, has
	// ended: virtqemud does not connect to virtnodedevd again for a client that it has.
	ErrBroken = errors.New("a connection of libvirt has ended")
	// ErrRefused means that a domain or device cannot be as it is described: the XML is wrong, or
	// this host cannot provide it.
	ErrRefused = errors.New("libvirt rejects the definition")
)

// Unavailable means that libvirt cannot be reached now.
type Unavailable struct {
	// URI is the connection's.
	URI string
	// Begun reports that the call had been passed to libvirt: its change may have happened, or may
	// still happen.
	Begun bool
	// Err is the cause, with a hint if there is one.
	Err error
}

func (u *Unavailable) Error() string {
	return fmt.Sprintf("libvirt (%s) is unavailable: %v", u.URI, u.Err)
}

// Unwrap is the cause.
func (u *Unavailable) Unwrap() error { return u.Err }

// Explain returns why no connection could be opened, with a hint. libvirt's library has one error
// code for all of it, so the sockets that the URI leads to are tried once more without it.
func Explain(ctx context.Context, uri string, write bool, err error) error {
	if errors.Is(err, ErrNoLibrary) {
		return fmt.Errorf("%w; install it: apt-get install libvirt0", err)
	}
	worst := error(nil)
	for _, socket := range libvirtd.Sockets(uri, write) {
		problem := libvirtd.Probe(ctx, socket)
		switch {
		case problem == nil:
			if devices, modular := libvirtd.DevicesSocket(socket); modular {
				if problem := libvirtd.Probe(ctx, devices); errors.Is(problem, libvirtd.ErrNotRunning) {
					return fmt.Errorf(
						"%w; %w; start it: systemctl enable --now virtnodedevd.socket virtnodedevd-ro.socket", err,
						problem)
				}
			}
			return fmt.Errorf("%w (but the daemon responds at %s: see its log)", err, socket)
		case worst == nil || errors.Is(worst, libvirtd.ErrNotRunning):
			worst = problem
		}
	}
	switch {
	case worst == nil:
		return err
	case errors.Is(worst, libvirtd.ErrNotRunning):
		return fmt.Errorf("%w; %s", worst, startHint(uri))
	case errors.Is(worst, libvirtd.ErrSilent):
		return fmt.Errorf("%w; if this persists: systemctl restart libvirtd (or virtqemud); guests keep running", worst)
	}
	return fmt.Errorf("%w: %w", worst, err)
}

// startHint is how to start the URI's daemon.
func startHint(uri string) string {
	if u, err := url.Parse(uri); err == nil && u.Query().Get("socket") != "" {
		return "start the daemon that should listen there, or correct uri in the libvirt driver's configuration"
	}
	return "start it: systemctl start libvirtd (or virtqemud); if there is no such unit, install it: apt-get " +
		"install libvirt-daemon-system"
}
