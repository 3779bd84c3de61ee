// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/coreos/go-systemd/v22/activation"
)

// PlacementSocket is the name (FileDescriptorName=) under which
// compute-agent-placement.socket passes its sockets.
const PlacementSocket = "placement"

// ErrNotListener is wrapped if systemd passed a descriptor that is not a listening stream socket.
var ErrNotListener = errors.New("not a listening socket")

// Listeners returns the sockets that systemd passed to this process, by name. It removes LISTEN_*
// from the environment, so that a second call returns none. On an error, all sockets are closed.
func Listeners() (map[string][]net.Listener, error) {
	listeners := map[string][]net.Listener{}
	var bad error
	for _, f := range activation.Files(true) {
		l, err := net.FileListener(f)
		_ = f.Close() // FileListener duplicates it
		if err != nil {
			bad = errors.Join(bad,
				fmt.Errorf("descriptor %q from systemd: %w: %w; the socket unit must use ListenStream= with Accept=no",
					f.Name(), ErrNotListener, err))
			continue
		}
		listeners[f.Name()] = append(listeners[f.Name()], l)
	}
	if bad == nil {
		return listeners, nil
	}
	for _, ls := range listeners {
		CloseAll(ls)
	}
	return nil, bad
}

// Duplicate returns another listener of the same socket, which stays open when one is closed.
func Duplicate(l net.Listener) (net.Listener, error) {
	of, ok := l.(interface{ File() (*os.File, error) })
	if !ok {
		return nil, fmt.Errorf("%s: a listener of type %T", l.Addr(), l)
	}
	f, err := of.File()
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // FileListener duplicates it
	return net.FileListener(f)
}

// CloseAll closes listeners.
func CloseAll(listeners []net.Listener) {
	for _, l := range listeners {
		_ = l.Close()
	}
}
