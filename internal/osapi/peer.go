// SPDX-License-Identifier: Apache-2.0

package osapi

import (
	"errors"
	"fmt"
	"net"
	"net/http"

	"golang.org/x/sys/unix"
)

// ErrNoPeer is wrapped by errors of PeerUID for a request that did not come over a unix socket.
var ErrNoPeer = errors.New("the connection is not one of a unix socket, so the kernel does not know its user")

// PeerUID is the user of the process that opened the connection of a request, as the kernel
// recorded it then (SO_PEERCRED). The request must be one of a [Server] on a unix socket.
func PeerUID(r *http.Request) (uint32, error) {
	c, ok := r.Context().Value(connKey{}).(net.Conn)
	if !ok {
		return 0, ErrNoPeer
	}
	socket, ok := countedOf(c).Conn.(*net.UnixConn)
	if !ok {
		return 0, ErrNoPeer
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("the user of a connection: %w", err)
	}
	var peer *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) { peer, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return 0, fmt.Errorf("the user of a connection: %w", err)
	}
	if failed != nil {
		return 0, fmt.Errorf("the user of a connection (SO_PEERCRED): %w", failed)
	}
	return peer.Uid, nil
}
