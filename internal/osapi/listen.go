// SPDX-License-Identifier: Apache-2.0

package osapi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// ErrInUse is wrapped by the error of Listen for a socket on which another process answers.
var ErrInUse = errors.New("another process is listening")

// Listen opens HOST:PORT, or unix:///PATH: a socket that only its owner may use. A socket that a
// process left behind is replaced; one on which a process answers is not.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	return listenAt(ctx, address, 0o700, 0o600)
}

// ListenPeers is Listen, but every user of the machine may connect to the unix socket: whom it
// serves, the handler decides by [PeerUID]. Others may enter the directory, if it is made, and not
// list it.
func ListenPeers(ctx context.Context, address string) (net.Listener, error) {
	return listenAt(ctx, address, 0o711, 0o666)
}

// listenAt opens an address. The modes are those of a unix socket and, if it is made, of its
// directory.
func listenAt(ctx context.Context, address string, directory, socket fs.FileMode) (net.Listener, error) {
	var lc net.ListenConfig
	path, unix := strings.CutPrefix(address, "unix://")
	if !unix {
		return lc.Listen(ctx, "tcp", address)
	}
	if err := os.MkdirAll(filepath.Dir(path), directory); err != nil {
		return nil, fmt.Errorf("the directory of the socket: %w", err)
	}
	if err := removeStale(ctx, path); err != nil {
		return nil, err
	}
	// Before the socket has a name: no other user can connect in between.
	lc.Control = func(_, _ string, c syscall.RawConn) error {
		var err error
		if failed := c.Control(func(fd uintptr) { err = syscall.Fchmod(int(fd), 0o600) }); failed != nil {
			return failed
		}
		return err
	}
	l, err := lc.Listen(ctx, "unix", path)
	if err != nil || socket == 0o600 {
		return l, err
	}
	if err := os.Chmod(path, socket); err != nil { // the mode before was less the umask
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// removeStale removes a socket on which no process answers.
func removeStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s exists and is not a socket; choose another path, or remove it", path)
	}
	d := net.Dialer{Timeout: time.Second}
	if c, err := d.DialContext(ctx, "unix", path); err == nil {
		_ = c.Close()
		return fmt.Errorf("%w at %s: stop it first, or choose another path", ErrInUse, path)
	}
	return os.Remove(path)
}

// IsLoopback reports whether only this machine reaches what listens at a host, which is written as
// in HOST:PORT and URLs (IPv6 without brackets): an address in 127.0.0.0/8 or ::1, with a zone or
// mapped into IPv6 too, or the name localhost. An empty host means all interfaces and is not one;
// other names may lead anywhere.
func IsLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && isLoopbackIP(ip)
}

// IsExposed reports whether other machines certainly reach what listens at a host: an empty host,
// and addresses that are not loopback. A name other than localhost is neither before it is looked
// up.
func IsExposed(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "" || err == nil && !isLoopbackIP(ip)
}

func isLoopbackIP(ip netip.Addr) bool { return ip.Unmap().IsLoopback() }

// IsLoopbackAddr reports whether only this machine reaches a listener with this address: a unix
// socket, or HOST:PORT with an [IsLoopback] host.
func IsLoopbackAddr(a net.Addr) bool {
	if strings.HasPrefix(a.Network(), "unix") {
		return true
	}
	host, _, err := net.SplitHostPort(a.String())
	return err == nil && IsLoopback(host)
}
