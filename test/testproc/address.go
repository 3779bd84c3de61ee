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
)

// FreeAddress returns an address on which no process listens. Its port is outside the range of
// ports for outgoing connections: one of those could take it while its process is down.
func FreeAddress(t testing.TB) string {
	t.Helper()
	address, err := UnusedAddress(t.Context())
	Check(t, err)
	return address
}

// UnusedAddress is FreeAddress for what is no test.
func UnusedAddress(ctx context.Context) (string, error) {
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", 10000+rand.IntN(20000))
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
		if err != nil {
			continue
		}
		return address, l.Close()
	}
	return "", errors.New("no port is free")
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
