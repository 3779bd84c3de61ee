// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"errors"
	"fmt"
	"net"

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
			bad = errors.Join(bad, fmt.Errorf("descriptor %q from systemd: %w: %w; the socket unit must use ListenStream= with Accept=no", f.Name(), ErrNotListener, err))
			continue
		}
		listeners[f.Name()] = append(listeners[f.Name()], l)
	}
	if bad == nil {
		return listeners, nil
	}
	for _, ls := range listeners {
		for _, l := range ls {
			_ = l.Close()
		}
	}
	return nil, bad
}
