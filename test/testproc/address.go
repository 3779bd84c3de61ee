// SPDX-License-Identifier: Apache-2.0

package testproc

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// FreeAddress returns an address on which no process listens, and which no other test gets while
// this one runs. Its port is outside the range of ports for outgoing connections: one of those
// could take it while its process is down.
func FreeAddress(t testing.TB) string {
	t.Helper()
	address, release, err := unusedAddress(t.Context())
	Check(t, err)
	t.Cleanup(release)
	return address
}

// Listen listens on a FreeAddress, for tests that look whether it is closed in the end: a port that
// the kernel chooses can belong to another test by then.
func Listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", FreeAddress(t))
	Check(t, err)
	return l
}

// UnusedAddress is FreeAddress for what is no test, or outlives it: this process keeps the address.
func UnusedAddress(ctx context.Context) (string, error) {
	address, _, err := unusedAddress(ctx)
	return address, err
}

func unusedAddress(ctx context.Context) (string, func(), error) {
	for range 100 {
		port := 10000 + rand.IntN(20000)
		release, reserved := reserve(port)
		if !reserved {
			continue
		}
		address := fmt.Sprintf("127.0.0.1:%d", port)
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
		if err != nil {
			release()
			continue
		}
		return address, release, l.Close()
	}
	return "", nil, errors.New("no port is free")
}

// reserve takes a port from all tests of the machine: it is theirs who have the socket of its name,
// which is in no directory and is gone with the process.
func reserve(port int) (release func(), reserved bool) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, false
	}
	release = func() { _ = unix.Close(fd) }
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("@compute-agent-test-port-%d", port)}); err != nil {
		release()
		return nil, false
	}
	return release, true
}

// SocketDir returns a directory for sockets that is removed when the test ends. Its name is short:
// that of t.TempDir can be too long for a socket.
func SocketDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "t")
	Check(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
