// SPDX-License-Identifier: Apache-2.0

package libvirtd

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Why a socket does not lead to a working daemon.
var (
	// ErrNotRunning: there is no socket, or no process listens on it.
	ErrNotRunning = errors.New("no libvirt daemon is running there")
	// ErrPermission: the socket is there, but this user may not use it.
	ErrPermission = errors.New("no permission to use the libvirt socket")
	// ErrSilent: a process listens but does not answer: a daemon that hangs or is still starting.
	ErrSilent = errors.New("the libvirt daemon does not respond")
	// ErrNotLibvirt: a process answers, but not in libvirt's protocol.
	ErrNotLibvirt = errors.New("what responds there is not a libvirt daemon")
)

// The header of libvirt's RPC (src/rpc/virnetprotocol.x) and the one call that every daemon answers
// before anything else: the list of authentication schemes. All fields are big-endian 32-bit words.
const (
	rpcHeader        = 28
	rpcProgramRemote = 0x20008086
	rpcVersion       = 1
	rpcProcAuthList  = 66
	rpcTypeCall      = 0
	rpcTypeReply     = 1
	rpcMaxReply      = 4096
)

// Probe connects to a daemon's Unix socket and makes one harmless call, so that nil means: a
// libvirt daemon is there, this user may talk to it, and it answers now. A mere connect would also
// succeed with one that is stopped.
//
// Errors: [ErrNotRunning], [ErrPermission], [ErrSilent] (ctx ended first), [ErrNotLibvirt], each
// with the socket and a hint. Cost: one connection, 28 bytes there and some 40 back.
func Probe(ctx context.Context, socket string) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return dialError(ctx, socket, err)
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()

	call := make([]byte, 0, rpcHeader)
	for _, word := range []uint32{rpcHeader, rpcProgramRemote, rpcVersion, rpcProcAuthList, rpcTypeCall, 1, 0} {
		call = binary.BigEndian.AppendUint32(call, word)
	}
	if _, err := conn.Write(call); err != nil {
		return answerError(ctx, socket, err)
	}
	reply := make([]byte, rpcHeader)
	if _, err := io.ReadFull(conn, reply); err != nil {
		return answerError(ctx, socket, err)
	}
	word := func(i int) uint32 { return binary.BigEndian.Uint32(reply[4*i:]) }
	if word(0) < rpcHeader || word(0) > rpcMaxReply ||
		word(1) != rpcProgramRemote || word(3) != rpcProcAuthList || word(4) != rpcTypeReply {
		return fmt.Errorf("%s: %w", socket, ErrNotLibvirt)
	}
	return nil
}

func dialError(ctx context.Context, socket string, err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s does not exist: %w", socket, ErrNotRunning)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("no process listens on %s: %w", socket, ErrNotRunning)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%s: %w (%s)", socket, ErrPermission, permissionHint(socket))
	case ctx.Err() != nil, errors.Is(err, syscall.EAGAIN):
		// A full backlog (EAGAIN) is what a daemon that no longer accepts looks like.
		return fmt.Errorf("%s: %w", socket, ErrSilent)
	}
	return fmt.Errorf("connecting to %s: %w", socket, err)
}

func answerError(ctx context.Context, socket string, err error) error {
	switch {
	case ctx.Err() != nil, errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("%s: %w", socket, ErrSilent)
	case errors.Is(err, io.EOF), errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNRESET):
		return fmt.Errorf("%s was closed without an answer: %w", socket, ErrNotLibvirt)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%s was closed in the middle of the answer: %w", socket, ErrNotLibvirt)
	}
	return fmt.Errorf("calling the daemon at %s: %w", socket, err)
}

// permissionHint names the group that opens the socket, if it is one that people can be added to.
func permissionHint(socket string) string {
	me := "this user"
	if u, err := user.Current(); err == nil {
		me = u.Username
	}
	info, err := os.Stat(socket)
	if err != nil {
		return "its directory is closed to " + me
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && info.Mode().Perm()&0o060 == 0o060 && st.Gid != 0 {
		if g, err := user.LookupGroupId(fmt.Sprint(st.Gid)); err == nil {
			return fmt.Sprintf("usermod -aG %s %s, then log in again, or restart the service", g.Name, me)
		}
	}
	option, conf, unit := opener(filepath.Base(socket))
	return fmt.Sprintf("its mode is %s, see %s in %s, or SocketMode of %s if systemd listens on it",
		info.Mode().Perm(), option, conf, unit)
}

// opener is what sets the mode of a socket with one of libvirt's names: an option in a file of the
// daemon's, or a unit of systemd's. Sockets for reading end in -ro.
func opener(name string) (option, conf, unit string) {
	name, readOnly := strings.CutSuffix(name, "-ro")
	daemon, _, named := strings.Cut(name, "-sock")
	if !named || daemon == "" || daemon == "libvirt" {
		daemon = "libvirtd"
	}
	if readOnly {
		return "unix_sock_ro_perms", daemon + ".conf", daemon + "-ro.socket"
	}
	return "unix_sock_rw_perms", daemon + ".conf", daemon + ".socket"
}
