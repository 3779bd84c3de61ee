// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/sys/unix"

	"github.com/compute-agent/compute-agent/internal/osapi"
	"github.com/compute-agent/compute-agent/resourcetracker/identity"
)

// userSocket is the abstract socket that the only agent of a user has. One that is starting has it
// while it looks for others. Agents that share their user have one of [sharedSocket] each.
func userSocket(uid int) string { return fmt.Sprintf("@compute-agent/agent-of-user/%d", uid) }

// maxSharing bounds the agents of a user on a machine that the next one knows of.
const maxSharing = 1000

func sharedSocket(socket string, n int) string { return fmt.Sprintf("%s/%d", socket, n) }

// agreeOnUser makes this process an agent of its user on this machine until release is called: the
// only one, or one of those that share. Drivers run as the user of their agent, and could read the
// files and keys of another agent of that user, from which their own sandbox keeps them. So each of
// the agents of a user must share it, or the one that comes later is refused. socket is
// [userSocket], but in tests.
//
// The sockets end with the process. Another user cannot keep an agent from starting: a socket that
// is not this user's does not count.
//
// Errors: an [*identity.Error], if another agent of the user runs, and not both of them share it.
func agreeOnUser(socket string, uid int, shares bool, log zerolog.Logger) (release func(), err error) {
	l, err := lockUser(socket, uid)
	if err == nil {
		own := l
		if shares {
			own, err = shareUser(socket)
		} else {
			err = unshared(socket, uid)
		}
		if shares || err != nil {
			_ = l.Close()
		}
		if err == nil {
			return hold(own), nil
		}
	}
	var refused *identity.Error
	if errors.As(err, &refused) {
		return nil, err
	}
	log.Warn().Err(err).Msg("It cannot be found out whether another agent of this user runs on this machine.")
	return func() {}, nil
}

// lockUser opens the socket of the only agent, unless there is one. It waits for agents that are
// starting.
func lockUser(socket string, uid int) (l *net.UnixListener, err error) {
	const tries = 1000 // of as many that start at once
	for range tries {
		if l, err = listenAbstract(socket); !errors.Is(err, unix.EADDRINUSE) {
			return l, err
		}
		other, decided, failed := holder(socket)
		switch {
		case failed != nil:
			err = failed // it has ended, or does not listen yet
			time.Sleep(time.Millisecond)
		case int(other.Uid) != uid:
			return nil, fmt.Errorf("process %d of user %d has the socket %s", other.Pid, other.Uid, socket)
		case decided:
			return nil, refusal(uid, other, "which does not share its user")
		}
	}
	return nil, err
}

// shareUser opens the socket of one of several agents.
func shareUser(socket string) (l *net.UnixListener, err error) {
	for n := range maxSharing {
		if l, err = listenAbstract(sharedSocket(socket, n)); !errors.Is(err, unix.EADDRINUSE) {
			break
		}
	}
	return l, err
}

// unshared is a refusal if agents that share run.
func unshared(socket string, uid int) error {
	for n := range maxSharing {
		if other, err := peer(sharedSocket(socket, n)); err == nil && int(other.Uid) == uid {
			return refusal(uid, other, "and this one does not share its user")
		}
	}
	return nil
}

func refusal(uid int, other unix.Ucred, why string) *identity.Error {
	return &identity.Error{
		Problem: fmt.Sprintf("another agent of this user (uid %d) runs on this machine, process %d, %s: the drivers of each could read the secrets of the other", uid, other.Pid, why),
		Hint:    "stop it, or run each agent as a user of its own; if they may read each other's secrets, set agent.share_user = true for both",
	}
}

func listenAbstract(socket string) (*net.UnixListener, error) {
	return net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: socket})
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

// holder returns the process that listens at a socket, and whether it keeps it: one that is
// starting accepts nothing, and when it closes the socket the kernel resets the connections that
// wait.
func holder(socket string) (other unix.Ucred, decided bool, err error) {
	c, other, err := dialAbstract(socket)
	if err != nil {
		return other, false, err
	}
	defer func() { _ = c.Close() }()
	const most = 10 * time.Second // a process may be stopped
	_ = c.SetReadDeadline(time.Now().Add(most))
	_, err = c.Read(make([]byte, 1))
	return other, errors.Is(err, io.EOF) || errors.Is(err, os.ErrDeadlineExceeded), nil
}

// peer returns who listens at an abstract socket.
func peer(socket string) (unix.Ucred, error) {
	c, other, err := dialAbstract(socket)
	if err == nil {
		_ = c.Close()
	}
	return other, err
}

func dialAbstract(socket string) (*net.UnixConn, unix.Ucred, error) {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: socket})
	if err != nil {
		return nil, unix.Ucred{}, err
	}
	other, err := osapi.PeerOf(c)
	if err != nil {
		_ = c.Close()
		return nil, other, err
	}
	return c, other, nil
}
