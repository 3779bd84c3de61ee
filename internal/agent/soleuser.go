// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"net"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/resourcetracker/identity"
)

// userSocket is the abstract socket that the only agent of a user has.
func userSocket(uid int) string { return fmt.Sprintf("@compute-agent/agent-of-user/%d", uid) }

// soleOfUser makes this process the only agent of its user on this machine until release is called:
// drivers run as the user of their agent, and could read the files and keys of another agent of
// that user, from which their own sandbox keeps them. An agent that may share its user takes no
// part in this. socket is [userSocket], but in tests.
//
// The socket ends with the process. Another user cannot keep an agent from starting: a socket that
// is not this user's does not count.
//
// Errors: an [*identity.Error], if another agent of the user runs.
func soleOfUser(socket string, uid int, log zerolog.Logger) (release func(), err error) {
	address := &net.UnixAddr{Net: "unix", Name: socket}
	const tries = 3 // the other one may end meanwhile
	for range tries {
		var l *net.UnixListener
		if l, err = net.ListenUnix(address.Net, address); err == nil {
			return hold(l), nil
		}
		if !errors.Is(err, unix.EADDRINUSE) {
			break
		}
		var other unix.Ucred
		if other, err = peer(address); err != nil {
			continue
		}
		if int(other.Uid) != uid {
			err = fmt.Errorf("process %d of user %d has the socket %s", other.Pid, other.Uid, address.Name)
			break
		}
		return nil, &identity.Error{
			Problem: fmt.Sprintf("another agent of this user (uid %d) runs on this machine, process %d: the drivers of each could read the secrets of the other", uid, other.Pid),
			Hint:    "stop it, or run each agent as a user of its own; if they may read each other's secrets, set agent.share_user = true",
		}
	}
	log.Warn().Err(err).Msg("It cannot be found out whether another agent of this user runs on this machine.")
	return func() {}, nil
}

// hold lets others ask whose a socket is, until release is called.
func hold(l *net.UnixListener) (release func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	return func() { _ = l.Close(); <-ended }
}

// peer returns who listens at an address.
func peer(address *net.UnixAddr) (unix.Ucred, error) {
	c, err := net.DialUnix(address.Net, nil, address)
	if err != nil {
		return unix.Ucred{}, err
	}
	defer func() { _ = c.Close() }()
	return osapi.PeerOf(c)
}
