// SPDX-License-Identifier: Apache-2.0

package osapi

import (
	"errors"
	"fmt"
	"net"
	"net/http"

	"golang.org/x/sys/unix"
)

// ErrNoPeer is wrapped by errors of Peer for a request that did not come over a unix socket.
var ErrNoPeer = errors.New("the connection is not one of a unix socket, so the kernel does not know its user")

// Peer is the process that opened the connection of a request, and its user, as the kernel recorded
// them then (SO_PEERCRED). The number of a process in another PID namespace is 0. The request must
// be one of a [Server] on a unix socket.
func Peer(r *http.Request) (unix.Ucred, error) {
	c, ok := r.Context().Value(connKey{}).(net.Conn)
	if !ok {
		return unix.Ucred{}, ErrNoPeer
	}
	socket, ok := countedOf(c).Conn.(*net.UnixConn)
	if !ok {
		return unix.Ucred{}, ErrNoPeer
	}
	return PeerOf(socket)
}

// PeerOf is the process at the other end of a unix socket, and its user, when the connection was
// opened or, for the side that opened it, when the other one began to listen (SO_PEERCRED).
func PeerOf(socket *net.UnixConn) (unix.Ucred, error) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return unix.Ucred{}, fmt.Errorf("the user of a connection: %w", err)
	}
	var peer *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) {
		peer,
			failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return unix.Ucred{}, fmt.Errorf("the user of a connection: %w", err)
	}
	if failed != nil {
		return unix.Ucred{}, fmt.Errorf("the user of a connection (SO_PEERCRED): %w", failed)
	}
	return *peer, nil
}

// PeerUID is the user of [Peer].
func PeerUID(r *http.Request) (uint32, error) {
	peer, err := Peer(r)
	return peer.Uid, err
}
