// SPDX-License-Identifier: Apache-2.0

package statedir

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

// startPatience is how long an agent waits for others of its user that are starting.
const startPatience = 10 * time.Second

// SoleUser is what agents of a user agree by.
type SoleUser struct {
	// Socket is the name of an abstract socket.
	Socket string
	UID    int
	// Patience is how long an agent waits for others of its user that are starting.
	Patience time.Duration
}

// CurrentUser is the user of this process.
func CurrentUser() SoleUser {
	return SoleUser{Socket: userSocket(os.Geteuid()), UID: os.Geteuid(), Patience: startPatience}
}

// Acquire registers this process as an agent of its user on this machine until release is called.
// Drivers run as the user of their agent, and could read the files and keys of other agents of that
// user. So agents of one user must all be set to share it; otherwise the one that starts later is
// refused.
//
// The sockets end with the process. Sockets of other users do not count, so another user cannot
// keep an agent from starting.
//
// Errors: an [*identity.Error], if another agent of the user runs, and not both of them share it.
func (u SoleUser) Acquire(shares bool, log zerolog.Logger) (release func(), err error) {
	l, err := u.lock()
	if err == nil {
		own := l
		if shares {
			own, err = shareUser(u.Socket)
		} else {
			err = u.checkUnshared()
		}
		if shares || err != nil {
			_ = l.Close()
		}
		if err == nil {
			return answerProbes(own), nil
		}
	}
	var refused *identity.Error
	if errors.As(err, &refused) {
		return nil, err
	}
	log.Warn().Err(err).Msg("It cannot be found out whether another agent of this user runs on this machine.")
	return func() {}, nil
}

// lock opens the socket of the only agent, unless there is one. It waits for agents that are
// starting.
func (u SoleUser) lock() (*net.UnixListener, error) {
	for end := time.Now().Add(u.Patience); ; time.Sleep(time.Millisecond) {
		l, err := listenAbstract(u.Socket)
		if !errors.Is(err, unix.EADDRINUSE) {
			return l, err
		}
		if kept, err := u.await(end); kept || time.Now().After(end) {
			return nil, err
		}
	}
}

// await waits until the socket is free, and returns an error that says why it was not. kept is true
// if it is not free: an agent that is starting accepts nothing, and when it closes the socket the
// kernel resets the connections that wait.
func (u SoleUser) await(end time.Time) (kept bool, err error) {
	c, other, err := dialAbstract(u.Socket)
	if err != nil {
		return false, err // it has ended, or does not listen yet
	}
	defer func() { _ = c.Close() }()
	if int(other.Uid) != u.UID {
		return true, fmt.Errorf("process %d of user %d has the socket %s", other.Pid, other.Uid, u.Socket)
	}
	_ = c.SetReadDeadline(end)
	_, err = c.Read(make([]byte, 1))
	switch {
	case err == nil, errors.Is(err, io.EOF):
		return true, u.refusal(other, "which does not share its user")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return true, u.refusal(other, "which is starting, or stopped")
	}
	return false, err
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

// checkUnshared is a refusal if agents that share run.
func (u SoleUser) checkUnshared() error {
	for n := range maxSharing {
		if other, err := peer(sharedSocket(u.Socket, n)); err == nil && int(other.Uid) == u.UID {
			return u.refusal(other, "and this one does not share its user")
		}
	}
	return nil
}

func (u SoleUser) refusal(other unix.Ucred, why string) *identity.Error {
	return &identity.Error{
		Problem: fmt.Sprintf(
			"another agent of this user (uid %d) runs on this machine, process %d, %s: the drivers of each could "+
				"read the secrets of the other", u.UID, other.Pid, why),
		Hint: "stop it, or run each agent as a user of its own; if they may read each other's secrets, set " +
			"agent.share_user = true for both",
	}
}

func listenAbstract(socket string) (*net.UnixListener, error) {
	return net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: socket})
}

// answerProbes lets others ask whose a socket is, until release is called.
func answerProbes(l *net.UnixListener) (release func()) {
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
